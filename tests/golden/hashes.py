"""The settings hash of every training of every shipped configuration: two that differ are trained apart."""

from __future__ import annotations

import json
from collections.abc import Mapping

from geomix.files import read_json, write_text
from geomix.settings import language_trainings_of, load, stages
from tests.conftest import ROOT
from tests.golden.store import FOLDER, WRITE

FILE = FOLDER / "settings_hashes.json"

CONFIGURATIONS = (
    (), ("smoke",), ("demo",), ("an4",), ("an4_quick",), ("demo", "espnet"), ("an4", "espnet"), ("an4", "an4_espnet"), ("fixture",), ("strong",), ("wikitext2",),
    ("demo", "signed"), ("demo", "anatomy"), ("demo", "granite_encoder"), ("demo", "algebra"), ("granite",),
)  # fmt: skip
"""Overlays over config.yaml, as README names them."""

Hashes = dict[str, str]
"""Training (track/arm/seed) -> the hash of its settings."""


def name_of(overlays: tuple[str, ...]) -> str:
    """How a configuration is called: its files."""
    return " ".join(["config.yaml", *(f"config/{overlay}.yaml" for overlay in overlays)])


def hashes_of(overlays: tuple[str, ...]) -> Hashes:
    """Of the speech study and of the language study, those that a gate alone wants included."""
    config = load(*(ROOT / "config" / f"{overlay}.yaml" for overlay in overlays), base=ROOT / "config.yaml")
    language = config["language"]
    found = {
        f"{track}/{arm}/seed{seed}": stages.training(config, arm, seed, track)
        for track, arm, seed in stages.all_trainings(config)
    }
    trainings = language_trainings_of(language)
    if gate := language["gate"]:
        trainings += [(gate["arm"], seed) for seed in gate["seeds"]]
    return found | {
        f"language/{arm}/seed{seed}": stages.language_training(config["language"], arm, seed) for arm, seed in trainings
    }


def read() -> dict[str, Hashes]:
    """The stored hashes by the configuration's name; none when there is no file."""
    return read_json(FILE) if FILE.exists() else {}


def write(hashes: Mapping[str, Hashes]) -> None:
    """Write all hashes, a training a line."""
    write_text(FILE, json.dumps(dict(hashes), indent=1) + "\n")


def faults(name: str, stored: Hashes, hashes: Hashes) -> list[str]:
    """A sentence for each training of a configuration whose hash is not the stored one."""
    said = []
    for training in dict.fromkeys([*hashes, *stored]):
        if hashes.get(training) == stored.get(training):
            continue
        if training not in stored:
            said.append(f"{name}: {training}: has no stored hash: write the file anew with `{WRITE}`")
        elif training not in hashes:
            said.append(f"{name}: {training}: is no training of it any more: write the file anew with `{WRITE}`")
        else:
            said.append(
                f"{name}: {training}: its settings hash has changed, so that all who have it train it again: a default or a "
                f"key was changed: give a new key a `before`, or write the file anew with `{WRITE}` and say so in the commit"
            )
    return said
