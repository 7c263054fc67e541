"""The language study: arms of a causal language model, judged by perplexity over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
            SELECTION, **{key: training[key] for key in ("detect_after", "save_minutes", "log_every")}
        ),
        out=out,
        threads=threads,
        device=training["device"],
    )


LANGUAGE = Kind(name="language", metric=PERPLEXITY, train=train)
