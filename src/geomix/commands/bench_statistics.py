"""`geomix bench statistics`: the scorer beside jiwer on 10,000 utterances, and 10,000 bootstrap resamples."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from geomix.commands.arguments import whole
from geomix.files import write_json
from geomix.speech.scoring import align, score_texts
from geomix.statistics import paired_bootstrap


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `geomix bench statistics`."""
    parser.add_argument("--out", type=Path, default=Path("results/bench"), help="folder of statistics.json")
    parser.add_argument("--utterances", type=whole(), default=10_000)
    parser.add_argument("--resamples", type=whole(), default=10_000)
    parser.add_argument("--repeats", type=whole(), default=5, help="runs a measurement; the median is kept")


def run(arguments: argparse.Namespace) -> None:
    """Measure, print and write statistics.json."""
    from geomix.training.devices import cpu_name

    figures = {
        "scorer": bench_scorer(arguments.utterances, arguments.repeats),
        "bootstrap": bench_bootstrap(arguments.resamples, arguments.repeats),
        "cpu": cpu_name(),
    }
    for name in ("scorer", "bootstrap"):
        print(name + ": " + ", ".join(f"{key} {value:,.4g}" for key, value in figures[name].items()))
    write_json(arguments.out / "statistics.json", figures)
    print(f"wrote {arguments.out}/statistics.json")


def bench_scorer(utterances: int = 10_000, repeats: int = 5) -> dict[str, Any]:
    """CPU seconds of our scorer and of jiwer on the same made-up texts: 20 words an utterance, about 10 % errors.

    `words_seconds` aligns the words alone, as jiwer's `process_words` does; `score_seconds` is the whole scorer (words,
    characters, kinds, per utterance) against both of jiwer's passes. The totals of both are checked to be equal. Without
    jiwer, which is among the test requirements, ours stands alone.
    """
    references, hypotheses = _texts(utterances)
    ids = [f"u{i:07}" for i in range(utterances)]
    by_id = dict(zip(ids, references, strict=True)), dict(zip(ids, hypotheses, strict=True))
    words = lambda: [align(r.split(), h.split()) for r, h in zip(references, hypotheses, strict=True)]
    score = score_texts(*by_id)
    figures = {
        "utterances": utterances,
        "words": score.words.reference,
        "words_seconds": _median_seconds(words, repeats),
        "score_seconds": _median_seconds(lambda: score_texts(*by_id), repeats),
    }
    try:
        import jiwer
    except ImportError:
        print("jiwer is not installed (it is in requirements-test.txt): the scorer is measured alone")
        return figures
    theirs = jiwer.process_words(references, hypotheses)
    if score.words.errors != theirs.substitutions + theirs.insertions + theirs.deletions:
        raise RuntimeError(f"the scorer counts {score.words.errors} errors, jiwer {theirs}")
    return figures | {
        "jiwer_words_seconds": _median_seconds(lambda: jiwer.process_words(references, hypotheses), repeats),
        "jiwer_characters_seconds": _median_seconds(lambda: jiwer.process_characters(references, hypotheses), repeats),
    }


def bench_bootstrap(resamples: int = 10_000, repeats: int = 5) -> dict[str, Any]:
    """CPU seconds of a paired bootstrap of two arms with three seeds each over test-clean's 40 speakers."""
    generator = np.random.default_rng(0)
    words = generator.integers(1000, 1600, 40)
    a, b = generator.poisson(0.10 * words, (3, 40)), generator.poisson(0.11 * words, (3, 40))
    seconds = _median_seconds(lambda: paired_bootstrap(a, b, words, resamples=resamples), repeats)
    return {"resamples": resamples, "speakers": 40, "seeds": 3, "seconds": seconds}


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


def _median_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Median of the process's CPU seconds: all that is measured here runs on one thread, and neighbours do not count."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return float(np.median(seconds))
