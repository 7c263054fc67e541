"""The language study: arms of a causal language model, judged by perplexity over seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.files import read_object
from geomix.settings import language_training_settings
from geomix.statistics import range_verdict
from geomix.studies.base import Judged, Kind
from geomix.studies.comparison import number_a_seed
from geomix.training.results import Trained


def perplexity(trained: Trained, name: str) -> float:
    """Perplexity of a training at its best epoch on `valid` or `test`, mean over batches, from its record."""
    return trained.perplexity[name]["batch_mean"]


def judge(anchor: Mapping[str, Any], measured: Mapping[str, float], corpus: str) -> Judged:
    """The validation perplexity beside its range: `anchor` has arm, low, high (a bound that is null is none), source.

    Without both bounds the outcome is recorded as open and the gate passes.
    """
    value, source, bounds = measured["valid"], anchor.get("source"), (anchor["low"], anchor["high"])
    verdict = range_verdict(value, *bounds, arm=anchor["arm"], corpus=corpus, source=source)
    return Judged(verdict, {"measured": value, "low": bounds[0], "high": bounds[1], "source": source})


PERPLEXITY = number_a_seed(
    name="perplexity",
    plural="perplexities",
    file="record.json",
    read=perplexity,
    judged_sets=lambda anchor: ["valid"],
    judge=judge,
)


def train(config: Mapping[str, Any], track: None, arm: str, seed: int, files: Any, out: Path, threads: int) -> None:
    """Train one arm; `config` is a language section with `run`, `files` those of the prepared text, all in one folder."""
    from geomix.language.training import SELECTION, train_arm
    from geomix.training.options import TrainerOptions
    from geomix.training.record import About

    definition, training = config["arms"][arm], config["training"]
    about = About(config["run"], arm, config["corpus"]["name"], definition["gated"], definition["unmatched"])
    train_arm(
        language_training_settings(config, arm, seed),
        Path(files[0]).parent,
        about=about,
        options=TrainerOptions(
            SELECTION, **{key: training[key] for key in ("detect_after", "save_minutes", "log_every", "tensorboard")}
        ),
        out=out,
        threads=threads,
        device=training["device"],
    )


def described(config: Mapping[str, Any], files: Mapping[str, Any]) -> dict[str, Any]:
    """Pieces of the vocabulary and the exact size of each arm; `files` has text (the prepared text's corpus.json).

    A `UserError` names an arm whose parameter count is more than 5 % from the baseline's without `unmatched: true`.
    """
    from geomix.models.arms import check_language_matched

    vocabulary = read_object(Path(files["text"]), "vocabulary")["vocabulary"]
    keys = ("parameters", "deviation", "flops_per_token")
    sizes = {}
    for size in check_language_matched(config, vocabulary):
        block = {"feed_forward": dataclasses.asdict(size.block)} if size.block else {}
        sizes[size.arm] = {**{key: getattr(size, key) for key in keys}, **block}
    return {"vocabulary": vocabulary, "sizes": sizes}


LANGUAGE = Kind(name="language", metric=PERPLEXITY, train=train, described=described)
