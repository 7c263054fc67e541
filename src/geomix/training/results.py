"""The reader of a run folder: study.json, and what each training left there. Speech and language, published runs included; no torch.

A speech study's trainings lie in `<run>/<track>/<arm>/seed<n>/`, a language study's, which has no tracks, in
`<run>/<arm>/seed<n>/`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_object
from geomix.settings import evaluation_sets, is_speech, seeds_of
from geomix.training.record import LanguagePart, RunRecord

LANGUAGE = "language"  # where a run's language study lies, below its own folder
WER, PERPLEXITY = "wer", "perplexity"


def studies_in(folder: str | os.PathLike) -> list[Path]:
    """The folders of a run that hold a study: its own, and `language` in it."""
    folder = Path(folder)
    return [place for place in (folder, folder / LANGUAGE) if (place / "study.json").is_file()]


@dataclass(frozen=True)
class Study:
    """results/<run>/study.json: the parts of the configuration that say what was asked, as the configuration has them."""

    folder: Path
    settings: Mapping[str, Any]

    @classmethod
    def read(cls, folder: str | os.PathLike) -> Study:
        """Read `<folder>/study.json`; a key that is missing is a `UserError`."""
        folder = Path(folder)
        settings = read_object(folder / "study.json")
        for key in ("run", "corpus", "arms", "study", "comparison", "gate"):
            if key not in settings:
                raise UserError(f"{folder / 'study.json'}: has no {key!r}: run the step that describes the study again")
        return cls(folder, settings)

    @property
    def run(self) -> str:
        return self.settings["run"]

    @property
    def corpus(self) -> str:
        return self.settings["corpus"]["name"]

    @property
    def metric(self) -> str:
        """`wer` or `perplexity`: a language study has no tracks."""
        return WER if is_speech(self.settings) else PERPLEXITY

    @property
    def hypothesis(self) -> str | None:
        return self.settings.get("hypothesis")

    @property
    def arms(self) -> list[str]:
        return list(self.settings["study"]["arms"])

    @property
    def tracks(self) -> list[str]:
        """Tracks of a speech study; one without a name of a language study."""
        return list(self.settings["study"].get("tracks", [""]))

    def seeds(self, track: str = "", arm: str | None = None) -> list[int]:
        """Training seeds of a track, or of an arm that names its own."""
        own = self.settings["arms"][arm].get("seeds") if arm else None
        return list(own or seeds_of(self.settings["study"], track))

    @property
    def sets(self) -> list[str]:
        """Evaluation sets, in the configuration's order; the splits `valid` and `test` of a text."""
        return evaluation_sets(self.settings) if self.metric == WER else ["valid", "test"]

    @property
    def test_sets(self) -> list[str]:
        """Evaluation sets that no epoch was selected on."""
        dev = self.settings["corpus"].get("dev") if self.metric == WER else ["valid"]
        return [name for name in self.sets if not (isinstance(dev, list) and name in dev)]

    def parameters(self, arm: str) -> int | None:
        """Exact size of an arm, as the study was described with it."""
        return self.settings.get("sizes", {}).get(arm, {}).get("parameters")

    @property
    def planned(self) -> list[tuple[str, str]]:
        """Contrasts (a, b) named before any run."""
        return [(a, b) for a, b in self.settings["comparison"]["planned"]]

    @property
    def resamples(self) -> int:
        return self.settings["comparison"]["resamples"]

    @property
    def seed(self) -> int:
        """Seed of the bootstrap."""
        return self.settings["comparison"]["seed"]

    @property
    def gate(self) -> dict[str, Any] | None:
        """The configuration's gate; None for a study without one."""
        return self.settings["gate"]

    @property
    def references(self) -> list[dict[str, Any]]:
        """Public results, for scale: {system, source, wer: {set: %}}, or {system, source, valid, test} of perplexities."""
        return list(self.settings.get("references") or [])

    def trained(self, track: str, arm: str, seed: int) -> Trained:
        """The results of one training."""
        return Trained(self.folder / track / arm / f"seed{seed}", track, arm, seed)

    @cached_property
    def trainings(self) -> list[Trained]:
        """All trainings of the study: track by track, arm by arm, seed by seed."""
        return [
            self.trained(track, arm, seed)
            for track in self.tracks
            for arm in self.arms
            for seed in self.seeds(track, arm)
        ]

    def of(self, track: str, arm: str) -> list[Trained]:
        """The trainings of an arm on a track, in the order of the seeds."""
        return [t for t in self.trainings if (t.track, t.arm) == (track, arm)]

    def perplexities(self, arm: str, split: str, average: str = "batch_mean") -> list[float]:
        """Perplexity of each seed of a language model at its best epoch, the mean over batches or by `token`."""
        return [trained.perplexity[split][average] for trained in self.of("", arm)]


@dataclass(frozen=True)
class PairBlock:
    """What was measured in one block of a pair mixer.

    sine : quantile (`0.05` to `0.95`) -> sine of the angle between partners; None where there were no pairs
    mean_gate : 1 keeps the token, 0 takes the mixture
    narrow_share : share of partners with a sine below 0.05
    """

    block: int
    sine: Mapping[str, float | None]
    mean_gate: float | None
    narrow_share: float | None


@dataclass(frozen=True)
class Diagnostics:
    """The pair mixer's blocks before and after the training; empty for an arm without one."""

    start: tuple[PairBlock, ...] = ()
    end: tuple[PairBlock, ...] = ()


@dataclass(frozen=True)
class Trained:
    """Files of one training, `<run>/<track>/<arm>/seed<seed>/`. Each is read when asked for, once."""

    folder: Path
    track: str
    arm: str
    seed: int

    def score_path(self, name: str) -> Path:
        """The scored utterances of set `name`, for `geomix.speech.scoring.read_score`."""
        return self.folder / "score" / f"{name}.tsv"

    def missing(self, sets: Iterable[str]) -> list[Path]:
        """Those of its record and its scores of `sets` that are not there."""
        needed = [self.folder / "record.json", *map(self.score_path, sets)]
        return [path for path in needed if not path.is_file()]

    @cached_property
    def record(self) -> RunRecord:
        """The run record; absent, or of another training than the averaged model's, is a `UserError`."""
        record = RunRecord.read(self.folder / "record.json")
        averaged, known = self._averaging.get("training"), record.subject.settings_hash
        if averaged and averaged != known:
            raise UserError(
                f"{self.folder / 'averaging.json'}: its model is of training {averaged}, the record beside it of {known}: "
                "run the study again, so that the model is averaged, decoded and scored anew"
            )
        return record

    @property
    def perplexity(self) -> Mapping[str, Mapping[str, float]]:
        """Split -> {"batch_mean", "token"} of a language model; `UserError` for a record of anything else."""
        domain = self.record.domain
        if not isinstance(domain, LanguagePart):
            raise UserError(f"{self.folder / 'record.json'}: has no 'perplexity': run the training step again")
        return domain.perplexity

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """Lines of log.jsonl; empty when there is none (another trainer's track)."""
        path = self.folder / "log.jsonl"
        if not path.is_file():
            return []
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        except json.JSONDecodeError as error:
            raise UserError(f"{path}: not a JSON object a line ({error}): run the training step again") from None
        if not all(isinstance(line, dict) for line in lines):
            raise UserError(f"{path}: not a JSON object a line: run the training step again")
        return lines

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """The log's lines of a kind, `step` or `epoch`."""
        return [line for line in self.log if line.get("kind") == kind]

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Per-block diagnostics of the pair mixer; empty for an arm without one."""
        path = self.folder / "diagnostics.json"
        found = read_object(path) if path.is_file() else {}
        try:
            return Diagnostics(*(tuple(map(_pair_block, enumerate(found.get(w, ())))) for w in ("start", "end")))
        except (AttributeError, KeyError, TypeError):
            raise UserError(f"{path}: not diagnostics by block: run the training step again") from None

    @cached_property
    def _averaging(self) -> dict[str, Any]:
        path = self.folder / "averaging.json"
        return read_object(path) if path.is_file() else {}

    @property
    def averaging_note(self) -> str | None:
        """What averaging.json has to say about the epochs it averaged, if anything."""
        return self._averaging.get("note")


def _pair_block(numbered: tuple[int, Mapping[str, Any]]) -> PairBlock:
    number, values = numbered
    sine = values["sine_quantiles"]
    if not isinstance(sine, dict):
        raise TypeError
    return PairBlock(values.get("block", number), sine, values.get("mean_gate"), values.get("narrow_share"))
