"""`geomix bench statistics`: the scorer beside jiwer on 10,000 utterances, and 10,000 bootstrap resamples."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from geomix.benchmarks.clock import measure, prepared
from geomix.benchmarks.options import Common, option
from geomix.files import write_json
from geomix.speech.scoring import align, score_texts
from geomix.statistics import paired_bootstrap
from geomix.training.cpu import cpu_name


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `geomix bench statistics`; it writes statistics.json."""

    utterances: int = option(10_000, "utterances that are scored")
    resamples: int = option(10_000, "resamples of the bootstrap")
    repeats: int = option(5, "runs a measurement; the median is kept")


def run(options: Options) -> None:
    """Measure, print and write statistics.json."""
    prepared("cpu", options.threads)
    figures = {
        "scorer": bench_scorer(options.utterances, options.repeats),
        "bootstrap": bench_bootstrap(options.resamples, options.repeats),
        "cpu": cpu_name(),
    }
    for name in ("scorer", "bootstrap"):
        print(name + ": " + ", ".join(f"{key} {value:,.4g}" for key, value in figures[name].items()))
    write_json(options.out / "statistics.json", figures)
    print(f"wrote {options.out}/statistics.json")


def bench_scorer(utterances: int, repeats: int) -> dict[str, Any]:
    """CPU seconds of our scorer and of jiwer on the same made-up texts: 20 words an utterance, about 10 % errors.

    `words_seconds` aligns the words alone, as jiwer's `process_words` does; `score_seconds` is the whole scorer (words,
    characters, kinds, per utterance) against both of jiwer's passes. The totals of both are checked to be equal. Without
    jiwer, which is among the test requirements, ours stands alone.
    """
    references, hypotheses = _texts(utterances)
    ids = [f"u{i:07}" for i in range(utterances)]
    by_id = dict(zip(ids, references, strict=True)), dict(zip(ids, hypotheses, strict=True))
    score = score_texts(*by_id)
    calls = {
        "words_seconds": lambda: [align(r.split(), h.split()) for r, h in zip(references, hypotheses, strict=True)],
        "score_seconds": lambda: score_texts(*by_id),
    }
    try:
        import jiwer
    except ImportError:
        print("jiwer is not installed (it is in requirements-test.txt): the scorer is measured alone")
    else:
        theirs = jiwer.process_words(references, hypotheses)
        if score.words.errors != theirs.substitutions + theirs.insertions + theirs.deletions:
            raise RuntimeError(f"the scorer counts {score.words.errors} errors, jiwer {theirs}")
        calls["jiwer_words_seconds"] = lambda: jiwer.process_words(references, hypotheses)
        calls["jiwer_characters_seconds"] = lambda: jiwer.process_characters(references, hypotheses)
    # processor time: all that is measured here runs on one thread, and neighbours do not count
    times = measure(calls, least=repeats, most=repeats, warm_up=0)
    seconds = {name: timing.processor_seconds for name, timing in times.items()}
    return {"utterances": utterances, "words": score.words.reference} | seconds


def bench_bootstrap(resamples: int, repeats: int) -> dict[str, Any]:
    """CPU seconds of a paired bootstrap of two arms with three seeds each over test-clean's 40 speakers."""
    generator = np.random.default_rng(0)
    words = generator.integers(1000, 1600, 40)
    a, b = generator.poisson(0.10 * words, (3, 40)), generator.poisson(0.11 * words, (3, 40))
    call = {"bootstrap": lambda: paired_bootstrap(a, b, words, resamples=resamples)}
    timing = measure(call, least=repeats, most=repeats, warm_up=0)["bootstrap"]
    return {"resamples": resamples, "speakers": 40, "seeds": 3, "seconds": timing.processor_seconds}


def _texts(utterances: int) -> tuple[list[str], list[str]]:
    rng = random.Random(0)
    vocabulary = ["".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ'", k=rng.randint(2, 9))) for _ in range(5000)]
    references, hypotheses = [], []
    for _ in range(utterances):
        words = rng.choices(vocabulary, k=rng.randint(5, 35))
        heard = []
        for word in words:
            u = rng.random()
            heard += [] if u < 0.015 else [rng.choice(vocabulary)] if u < 0.085 else [word]
            heard += [rng.choice(vocabulary)] if rng.random() < 0.015 else []
        references.append(" ".join(words))
        hypotheses.append(" ".join(heard))
    return references, hypotheses
