"""What a run's results folder holds: the study it belongs to, and the record and scores of each arm, track and seed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_object
from geomix.settings import evaluation_sets, seeds_of
from geomix.speech.scoring import Score, read_score


@dataclass(frozen=True)
class Study:
    """results/<run>/study.json: the parts of the configuration that say what was asked, as the configuration has them."""

    folder: Path
    settings: dict[str, Any]

    @classmethod
    def read(cls, folder: str | os.PathLike) -> Study:
        """Read `<folder>/study.json`; a key that is missing is a `UserError`."""
        folder = Path(folder)
        settings = read_object(folder / "study.json")
        for key in ("run", "corpus", "arms", "study", "comparison", "gate"):
            if not isinstance(settings, dict) or key not in settings:
                raise UserError(f"{folder / 'study.json'}: has no {key!r}: run the step that describes the study again")
        if "tracks" not in settings["study"]:
            raise UserError(
                f"{folder}: not a speech study; `snakemake language` with its configuration rebuilds its pages"
            )
        return cls(folder, settings)

    @property
    def run(self) -> str:
        return self.settings["run"]

    @property
    def corpus(self) -> str:
        return self.settings["corpus"]["name"]

    @property
    def hypothesis(self) -> str | None:
        return self.settings.get("hypothesis")

    @property
    def arms(self) -> list[str]:
        return list(self.settings["study"]["arms"])

    @property
    def tracks(self) -> list[str]:
        return list(self.settings["study"]["tracks"])

    def seeds(self, track: str) -> list[int]:
        """Training seeds of a track."""
        return seeds_of(self.settings["study"], track)

    @property
    def sets(self) -> list[str]:
        """Evaluation sets, in the configuration's order."""
        return evaluation_sets(self.settings)

    @property
    def test_sets(self) -> list[str]:
        """Evaluation sets that no epoch was selected on."""
        dev = self.settings["corpus"]["dev"]
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
        """Public results, for scale: {system, source, wer: {set: %}}."""
        return list(self.settings.get("references") or [])

    def trained(self, track: str, arm: str, seed: int) -> Trained:
        """The results of one training."""
        return Trained(self.folder / track / arm / f"seed{seed}", track, arm, seed)


@dataclass(frozen=True)
class Trained:
    """Files of one track, arm and seed: `<run>/<track>/<arm>/seed<seed>/`. Each is read when asked for, once."""

    folder: Path
    track: str
    arm: str
    seed: int

    def missing(self, sets: Iterable[str]) -> list[Path]:
        """Those of its record and scores that are not there."""
        needed = [self.folder / "record.json", *(self.folder / "score" / f"{name}.tsv" for name in sets)]
        return [path for path in needed if not path.is_file()]

    @cached_property
    def record(self) -> dict[str, Any]:
        """The run record; absent, or of another training than the averaged model's, is a `UserError`."""
        record = read_object(self.folder / "record.json", "parameters")
        averaging = self.folder / "averaging.json"
        averaged = read_object(averaging).get("training") if averaging.is_file() else None
        if averaged and record.get("settings_hash") not in (None, averaged):
            raise UserError(
                f"{averaging}: its model is of training {averaged}, the record beside it of {record['settings_hash']}: "
                "run the study again, so that the model is averaged, decoded and scored anew"
            )
        return record

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

    @cached_property
    def diagnostics(self) -> dict[str, list[dict[str, Any]]]:
        """Per-block diagnostics of the pair mixer at the `start` and the `end`; empty for an arm without one."""
        path = self.folder / "diagnostics.json"
        found = read_object(path) if path.is_file() else {}
        if not isinstance(found, dict) or not all(isinstance(blocks, list) for blocks in found.values()):
            raise UserError(f"{path}: not diagnostics by block: run the training step again")
        return found

    @cached_property
    def averaging_note(self) -> str | None:
        """What averaging.json has to say about the epochs it averaged, if anything."""
        path = self.folder / "averaging.json"
        return read_object(path).get("note") if path.is_file() else None

    def score(self, name: str) -> Score:
        """The scored utterances of set `name`; absent is a `UserError`."""
        return read_score(self.folder / "score" / f"{name}.tsv")
