"""The speech study: arms of a recogniser on two tracks, judged by word error rate over speakers and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_object
from geomix.settings import about_training, training_settings
from geomix.speech.comparison import compare_systems, rate_form
from geomix.speech.scoring import read_score
from geomix.statistics import gate_verdict
from geomix.statistics.targets import sources_of
from geomix.studies.base import Judged, Kind, Metric
from geomix.training.results import Trained


def word_error_rate(trained: Trained, name: str) -> float:
    """Corpus WER in % of a training on a set; absent is a `UserError`."""
    path = trained.score_path(name).with_suffix(".json")
    rate = read_object(path).get("words", {}).get("rate")
    if rate is None:
        raise UserError(f"{path}: has no word error rate: score {name} against a reference that has words")
    return rate


def judge(anchor: Mapping[str, Any], measured: Mapping[str, float], corpus: str) -> Judged:
    """Each set's WER beside its target: `anchor` has arm and targets [{set, wer, tolerance, source}]."""
    targets = {target["set"]: target["wer"] for target in anchor["targets"]}
    tolerance = {target["set"]: target["tolerance"] for target in anchor["targets"]}
    sources = sources_of(anchor)
    verdict = gate_verdict(measured, targets, tolerance, arm=anchor["arm"], sources=sources)
    said = {"sets": list(targets), "target": targets, "tolerance": tolerance, "sources": sources, "measured": measured}
    return Judged(verdict, said)


WER = Metric(
    name="word error rate",
    file="score/{set}.tsv",
    read=lambda trained, name: read_score(trained.score_path(name)),
    value=word_error_rate,
    judged_sets=lambda anchor: [target["set"] for target in anchor["targets"]],
    judge=judge,
    compare=lambda a, b, names, study: compare_systems(
        a, b, names, resamples=study.resamples, seed=study.seed, margin=study.margin
    ),
    form=rate_form,
    difference=lambda a, b: rate_form({"a": 1.0, "b": -1.0}, 0.0, {"a": a, "b": b}),
    corrected=True,
)


def described(config: Mapping[str, Any], files: Mapping[str, Any]) -> dict[str, Any]:
    """Output units and the exact size of each arm; `files` has tokens (tokens.txt) and may have manifests, {set: path}.

    A `UserError` names an arm whose parameter count is more than 5 % from the baseline's without `unmatched: true`.
    """
    from geomix.models.arms import check_matched

    vocabulary = len(Path(files["tokens"]).read_text(encoding="utf-8").splitlines())
    # arms that are not run need not match
    run = {name: config["arms"][name] for name in {"attention", *config["study"]["arms"]}}
    sizes = check_matched({**config, "arms": run}, vocabulary)
    keys = ("parameters", "deviation", "flops_per_audio_second")
    found = {"vocabulary": vocabulary, "sizes": {s.arm: {key: getattr(s, key) for key in keys} for s in sizes}}
    if manifests := files.get("manifests"):
        found["manifests"] = {name: str(path) for name, path in manifests.items()}
    return found


def train(config: Mapping[str, Any], track: str, arm: str, seed: int, files: Any, out: Path, threads: int) -> None:
    """Train one arm of the track own; `files` is a rule's input, as `PreparedData.of` takes it."""
    from geomix.models.arms import check_arm
    from geomix.speech.prepared import PreparedData
    from geomix.speech.training import train_arm
    from geomix.training.averaging import Selection
    from geomix.training.options import TrainerOptions
    from geomix.training.record import About

    training = config["training"]
    check_arm(config, arm, files.tokens)
    train_arm(
        training_settings(config, arm, seed, track),
        PreparedData.of(files),
        about=About(**about_training(config, arm)),
        options=TrainerOptions(
            Selection(training["keep_best"], training["best_by"]),
            **{key: training[key] for key in ("detect_after", "save_minutes", "log_every", "tensorboard")},
        ),
        out=out,
        threads=threads,
        device=training["device"],
    )


SPEECH = Kind(name="speech", metric=WER, train=train, described=described)
