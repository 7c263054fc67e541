"""The studies of a configuration: what the rules make for each of them, and what their scripts read.

A further study that trains as the speech or the language study does is one more entry of `studies_of`, with settings in the
form of its kind: the whole resolved configuration for speech, a section in the form of `language` with `run` for language.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from geomix.settings import stages
from geomix.settings.algebra_jobs import phase_study, speech_phase_study
from geomix.settings.trainings import evaluation_sets, language_trainings_of, trainings_of


@dataclass(frozen=True)
class Instance(ABC):
    """One study.

    name : its folder below results/ and logs/
    suffix : what stands behind the names of the rules that it has for itself
    config : its settings
    """

    kind: ClassVar[str]
    name: str
    suffix: str
    config: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """results/<name>."""
        return f"results/{self.name}"

    @property
    def logs(self) -> str:
        """logs/<name>."""
        return f"logs/{self.name}"

    @property
    def gate(self) -> Mapping[str, Any] | None:
        """Its gate; None for a study without one."""
        return self.config["gate"]

    @property
    @abstractmethod
    def trainings(self) -> list[tuple[str, str, int]]:
        """(track, arm, seed) of each training, first seeds first; the track of a language model has no name."""

    @property
    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What study.json says that comes from the settings."""

    @property
    @abstractmethod
    def comparison(self) -> dict[str, Any]:
        """What the comparison of the arms depends on."""

    @property
    def measured(self) -> dict[str, Any]:
        """Params of the gate's measurement."""
        return {"gate": self.gate, "run": self.folder}

    @abstractmethod
    def training(self, arm: str, seed: int, track: str = "") -> str:
        """Param of a training: the hash of all that decides its weights beside the data."""

    @abstractmethod
    def judged(self, anchor: Mapping[str, Any]) -> list[str]:
        """Files, of those below the study's folder, that an anchor of the gate is measured by."""

    def files(self, pattern: str) -> list[str]:
        """`pattern`, of a training's folder, filled in for each training, and for each evaluation set where it has `{set}`."""
        sets = evaluation_sets(self.config) if "{set}" in pattern else [""]
        places = [place(self.folder, *training) for training in self.trainings]
        return [f"{where}/{pattern.replace('{set}', name)}" for where in places for name in sets]


def place(folder: str, track: str, arm: str, seed: int) -> str:
    """The folder of a training."""
    return "/".join(filter(None, (folder, track, arm, f"seed{seed}")))


class SpeechInstance(Instance):
    """A speech study; its settings are a whole resolved configuration."""

    kind = "speech"

    @property
    def trainings(self) -> list[tuple[str, str, int]]:
        return trainings_of(self.config["study"])

    @property
    def description(self) -> dict[str, Any]:
        return stages.report(self.config)

    @property
    def comparison(self) -> dict[str, Any]:
        return stages.comparison(self.config)

    def training(self, arm: str, seed: int, track: str = "") -> str:
        return stages.training(self.config, arm, seed, track)

    def judged(self, anchor: Mapping[str, Any]) -> list[str]:
        places = [place(self.folder, anchor["track"], anchor["arm"], seed) for seed in anchor["seeds"]]
        return [f"{where}/score/{target['set']}.json" for where in places for target in anchor["targets"]]


class LanguageInstance(Instance):
    """A language study; its settings are a section in the form of `language`, and `run`."""

    kind = "language"

    @property
    def trainings(self) -> list[tuple[str, str, int]]:
        return [("", arm, seed) for arm, seed in language_trainings_of(self.config)]

    @property
    def description(self) -> dict[str, Any]:
        return stages.language_report(self.config)

    @property
    def comparison(self) -> dict[str, Any]:
        return stages.language_comparison(self.config)

    @property
    def measured(self) -> dict[str, Any]:
        return {**super().measured, "corpus": self.config["corpus"]["name"]}

    def training(self, arm: str, seed: int, track: str = "") -> str:
        return stages.language_training(self.config, arm, seed)

    def judged(self, anchor: Mapping[str, Any]) -> list[str]:
        return [f"{place(self.folder, '', anchor['arm'], seed)}/record.json" for seed in anchor["seeds"]]


def studies_of(config: Mapping[str, Any]) -> dict[str, Instance]:
    """All studies of a resolved configuration by name."""
    run = config["run"]
    found: list[Instance] = [SpeechInstance(run, "", config)]
    if config["language"]["arms"]:
        found.append(LanguageInstance(f"{run}/language", "_language", {"run": run, **config["language"]}))
    for phase in ("components", "architectures"):
        section = phase_study(config, phase)
        if section["arms"]:
            found.append(LanguageInstance(section["run"], f"_algebra_{phase}", section))
    if speech := speech_phase_study(config):
        found.append(SpeechInstance(speech["run"], "_algebra_speech", speech))
    return {study.name: study for study in found}


def study_of(config: Mapping[str, Any], path: str | os.PathLike) -> Instance:
    """The study of a configuration in whose folder the file `path` lies."""
    studies = {Path(study.folder): study for study in studies_of(config).values()}
    return next(studies[parent] for parent in Path(path).parents if parent in studies)
