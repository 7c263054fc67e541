"""The run record: what a table row must be able to say about the training behind it.

In JSON a record is one flat object: the keys of its parts side by side. A key whose value is unknown is left out where `_left_out`
says so, and null elsewhere.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from geomix.errors import UserError
from geomix.files import read_object, write_json
from geomix.training.cpu import cpu_name

if TYPE_CHECKING:
    import torch
    from pydantic import TypeAdapter

    from geomix.training.meter import Summary

T = TypeVar("T")

PACKAGES = (
    "geomix",
    "torch",
    "torchaudio",
    "numpy",
    "sentencepiece",
    "safetensors",
    "soundfile",
    "kaldialign",
    "triton",
    "espnet",
)
# what makes a working tree dirty: code and settings; results that are tracked do not
CODE_PATHS = ("src", "rules", "workflow_scripts", "Snakefile", "config.yaml", "config", "pyproject.toml")


def _left_out() -> Any:
    """A key that a record may lack."""
    return dataclasses.field(default=None, metadata={"left_out": True})


@dataclasses.dataclass(frozen=True)
class About:
    """What a training is called by the run that asks for it, beside track and seed, which are among its settings."""

    run: str
    arm: str
    corpus: str
    gated: bool = False
    unmatched: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """What was trained on what.

    settings, settings_hash : all that decided the weights, and the name of the training made from it and the data
    mixer : the arm's definition
    data : counts and hashes of what was read
    """

    run: str
    corpus: str
    track: str
    arm: str
    seed: int
    gated: bool
    unmatched: bool
    mixer: Mapping[str, Any]
    parameters: int
    settings: Mapping[str, Any]
    settings_hash: str
    data: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        about: About,
        settings: Mapping[str, Any],
        state: Path,
        *,
        parameters: int,
        data: Mapping[str, Any],
    ) -> Subject:
        """Of a training in the state folder `state`; track, seed and mixer are among its settings.

        A model that has no mixer of ours is named by its architecture.
        """
        model = settings["model"]
        mixer = dict(model.get("mixer") or {"mixer": model["architecture"]})
        named = {"run": about.run, "corpus": about.corpus, "arm": about.arm}
        marks = {"gated": about.gated, "unmatched": about.unmatched}
        asked = {"track": settings["track"], "seed": settings["seed"], "settings": settings}
        return cls(**named, **marks, **asked, settings_hash=state.name, mixer=mixer, parameters=parameters, data=data)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """The job that made the weights: the code, the machine, the time.

    commit, dirty : None outside a repository
    device_flops : {"value": FLOP/s, "source", "dtype"}, the rate that `mfu` is of
    """

    commit: str | None
    dirty: bool | None
    device: str
    cpu: str
    threads: int
    packages: Mapping[str, str]
    device_flops: Mapping[str, Any]
    finished: str


@dataclasses.dataclass(frozen=True)
class BestEpoch:
    """An epoch that the selection chose, and the metric by which it did; None where that is no number."""

    epoch: int
    score: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """How the training went; seconds of wall time, bytes of memory, shares of the device's rate and of the training time."""

    epochs: int
    updates: int
    skipped_updates: int
    attempts: int
    wall_seconds: float
    mfu: float | None
    data_wait: float
    peak_memory_bytes: int
    best_epochs: list[BestEpoch]
    nondeterministic_ops: list[str] | None = _left_out()


@dataclasses.dataclass(frozen=True)
class Dropped:
    """Utterances of the training set that were left out: ids of those too short for their text, number of those too long."""

    too_short: list[str]
    too_long: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeechPart:
    """What a record of speech recognition says besides."""

    flops_per_audio_second: float | None
    audio_seconds_per_second: float
    dropped: Dropped
    unknown_words: Mapping[str, int] | None = _left_out()
    padding: float | None = _left_out()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguagePart:
    """What a record of language modelling says besides.

    perplexity : split -> {"batch_mean", "token"} of the best epoch's weights
    """

    flops_per_token: float
    tokens_per_second: float
    best_epoch: int
    perplexity: Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """The record of one training."""

    subject: Subject
    origin: Origin
    course: Course
    domain: SpeechPart | LanguagePart

    def to_json(self) -> dict[str, Any]:
        """The flat object that stands in record.json."""
        return plain_part(self.subject) | plain_part(self.origin) | plain_part(self.course) | plain_part(self.domain)

    def write(self, path: Path) -> None:
        """Write record.json, whole or not at all."""
        write_json(path, self.to_json())

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """The record in a file, of this version or an earlier one; a `UserError` names the key that it lacks or that is no such value."""
        values = read_object(path, "parameters")
        domain = LanguagePart if "perplexity" in values else SpeechPart
        return cls(*(parse_part(part, values, path) for part in (Subject, Origin, Course, domain)))


def plain_part(part: Any) -> dict[str, Any]:
    """A part of a record as JSON values."""
    optional = {field.name for field in dataclasses.fields(part) if field.metadata.get("left_out")}
    return {k: v for k, v in dataclasses.asdict(part).items() if v is not None or k not in optional}


def parse_part(part: type[T], values: Mapping[str, Any], path: Path) -> T:
    """A part of a record from JSON values, among which other keys may stand; `path` is named when one is wrong."""
    from pydantic import ValidationError

    names = {field.name for field in dataclasses.fields(part)}
    try:
        return _adapter(part).validate_python({key: value for key, value in values.items() if key in names})
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        raise UserError(f"{path}: {key}: {wrong['msg']}: remove it and run the step that makes it again") from None


@functools.cache
def _adapter(part: type) -> TypeAdapter:
    from pydantic import TypeAdapter

    return TypeAdapter(part)


def code_version(root: Path | None = None) -> dict[str, Any]:
    """{"commit": hash, "dirty": bool} of the repository that holds this package; both None outside a repository."""
    root = root or Path(__file__).resolve().parents[3]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True, timeout=600
        ).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        present = [path for path in CODE_PATHS if (root / path).exists()]
        return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--", *present))}
    except (subprocess.SubprocessError, OSError):
        return {"commit": None, "dirty": None}


def package_versions() -> dict[str, str]:
    """Versions of the packages that a result depends on, Python's included."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def job_record(begun: float, used: float, device: torch.device) -> dict[str, Any]:
    """The record of a job that is no single training.

    begun, used : `time.perf_counter()` and `time.process_time()` at its start.
    """
    from geomix.training import devices

    return {
        **code_version(),
        "cpu": cpu_name(),
        "packages": package_versions(),
        "wall_seconds": round(time.perf_counter() - begun, 2),
        "cpu_seconds": round(time.process_time() - used, 2),
        "peak_memory_bytes": devices.peak_memory(device),
        "finished": now(),
    }


def origin_of(summary: Summary, device: torch.device, threads: int) -> Origin:
    """What this job, which has just trained, says of itself."""
    from geomix.training import devices

    return Origin(
        **code_version(),
        device=devices.device_name(device),
        cpu=cpu_name(),
        threads=threads,
        packages=package_versions(),
        device_flops=summary.device_flops,
        finished=now(),
    )


def course_of(summary: Summary) -> Course:
    """How a training of our own loop went."""
    scores = {epoch: summary.scores[epoch] for epoch in summary.best}
    return Course(
        epochs=summary.epochs,
        updates=summary.updates,
        skipped_updates=summary.skipped,
        attempts=summary.attempts,
        wall_seconds=round(summary.seconds, 2),
        mfu=round(summary.mfu, 5),
        data_wait=round(summary.data_wait, 5),
        peak_memory_bytes=summary.peak_memory,
        nondeterministic_ops=summary.nondeterministic_ops,
        best_epochs=[BestEpoch(epoch, score if math.isfinite(score) else None) for epoch, score in scores.items()],
    )
