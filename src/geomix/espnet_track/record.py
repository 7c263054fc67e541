"""The run record and the log of a training by ESPnet, with the keys that those of the own track have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix.espnet_track.data import EspnetData, read_scp
from geomix.mixers.own.source import kept
from geomix.speech.manifest import SAMPLE_RATE
from geomix.speech.prepared import read_counts, read_dropped
from geomix.training.averaging import Selection
from geomix.training.cpu import cpu_name
from geomix.training.progress import LOG, read_log
from geomix.training.record import (
    About,
    BestEpoch,
    Course,
    Dropped,
    Origin,
    RunRecord,
    SpeechPart,
    Subject,
    code_version,
    now,
)
from geomix.training.store import plain


@dataclass(frozen=True)
class Trained:
    """A training by ESPnet that has come to its end.

    summary : what `run.py` read from its last checkpoint; attempts : {"attempts", "peak_memory"}
    lengths : Kaldi file of the samples of each training utterance
    dropped : ids too short for their transcripts
    """

    settings: Mapping[str, Any]
    data: EspnetData
    summary: Mapping[str, Any]
    attempts: Mapping[str, int]
    selection: Selection
    lengths: Path
    dropped: Sequence[str]


def record_of(about: About, trained: Trained, state: Path, origin: Origin) -> RunRecord:
    """The run record of a training in the state folder `state`."""
    summary, train = trained.summary, trained.data.train_summary
    epochs, flops = summary["epochs"].values(), _flops(trained, state)
    seconds = max(sum(values["train_seconds"] for values in epochs), 1e-9)
    rate = sum(map(int, read_scp(trained.lengths).values())) / SAMPLE_RATE * len(epochs) / seconds
    dropped = read_dropped(train)
    return RunRecord(
        Subject.of(
            about,
            trained.settings,
            state,
            parameters=summary["parameters"],
            data=read_counts(train) | {"hashes": trained.data.hashes},
        ),
        origin,
        _course(trained, None if flops is None else rate * flops / origin.device_flops["value"], seconds),
        SpeechPart(
            flops_per_audio_second=flops,
            audio_seconds_per_second=round(rate, 2),
            dropped=Dropped(sorted([*trained.dropped, *dropped.too_short]), dropped.too_long),
        ),
    )


def origin_of(summary: Mapping[str, Any], threads: int) -> Origin:
    """The job that has just trained."""

    return Origin(
        **code_version(),
        device=summary["device"],
        cpu=cpu_name(),
        threads=threads,
        packages=summary["packages"],
        device_flops=summary["device_flops"],
        finished=now(),
    )


def _course(trained: Trained, mfu: float | None, seconds: float) -> Course:
    """How it went; seconds : of training, without dev."""
    summary, selection, epochs = trained.summary, trained.selection, trained.summary["epochs"]
    accumulation = trained.settings["training"]["accumulation"]
    updates = sum(values["batches"] // accumulation for values in epochs.values())
    metrics = plain(epochs)
    return Course(
        epochs=len(epochs),
        updates=updates,
        skipped_updates=updates - summary["updates"],
        attempts=trained.attempts["attempts"],
        wall_seconds=round(sum(values["seconds"] for values in epochs.values()), 2),
        mfu=None if mfu is None else round(mfu, 5),
        data_wait=round(sum(values["waited"] or 0.0 for values in epochs.values()) / seconds, 5),
        peak_memory_bytes=trained.attempts["peak_memory"],
        best_epochs=[BestEpoch(epoch, metrics[str(epoch)][selection.best_by]) for epoch in selection.best(epochs)],
    )


def _flops(trained: Trained, state: Path) -> float | None:
    """Floating point operations a second of audio; None for a model that is not ours."""
    from geomix.models.flops import train_flops_per_audio_second
    from geomix.speech.tokenizer import Tokenizer
    from geomix.speech.training import model_settings

    if "architecture" in trained.settings["model"]:
        return None
    vocab = Tokenizer.load(trained.data.tokenizer).size
    settings = {**trained.settings, "model": kept(trained.settings["model"], state)}
    return train_flops_per_audio_second(model_settings(settings, vocab))


def log_lines(state: Path, summary: Mapping[str, Any], accumulation: int) -> Iterator[dict[str, Any]]:
    """log.jsonl of a finished training: the steps as they were said, and behind each epoch's its line."""
    steps = read_log(state / LOG) if (state / LOG).exists() else []
    update = 0
    for epoch, values in summary["epochs"].items():
        yield from (line for line in steps if line["epoch"] == epoch)
        update += values["batches"] // accumulation
        yield {
            "kind": "epoch",
            "epoch": epoch,
            "update": update,
            **{key: values[key] for key in ("train_loss", "dev_loss", "dev_cer")},
            "seconds": round(values["seconds"], 3),
            "data_wait": round((values["waited"] or 0.0) / max(values["train_seconds"], 1e-9), 5),
        }
