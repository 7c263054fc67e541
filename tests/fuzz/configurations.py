"""Targets of the configuration: the shipped ones with keys and values changed, and their files with other text in them."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from geomix.espnet_track.settings import check_study
from geomix.report.names import figure_files
from geomix.settings import load, resolve, stages
from geomix.settings.config import merge
from tests.conftest import ROOT
from tests.fuzz.damage import file_step, tree_step
from tests.fuzz.harness import Fault

OVERLAYS = (
    (), ("smoke",), ("demo",), ("an4",), ("an4", "espnet"), ("fixture",), ("strong",), ("wikitext2",), ("demo", "signed"), ("demo", "algebra"),
    ("granite",), ("demo", "granite_encoder"),
)  # fmt: skip


@cache
def shipped(overlays: tuple[str, ...]) -> str:
    """A shipped configuration as it is merged, before its defaults are filled in, as JSON."""
    found: dict[str, Any] = {}
    for path in (ROOT / "config.yaml", *(ROOT / "config" / f"{name}.yaml" for name in overlays)):
        found = merge(found, yaml.safe_load(path.read_text(encoding="utf-8")))
    return json.dumps(found)


@cache
def keys() -> tuple[str, ...]:
    """Every key that a configuration may have: a mistake with one of them is more than a typing error."""
    names: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            names.update(value)
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(json.loads((ROOT / "config/schema.json").read_text()))
    return tuple(sorted(names))


class Values:
    """A shipped configuration with values of other kinds, keys gone, renamed, put elsewhere."""

    name = "configuration"

    def make(self, folder: Path, draw: random.Random) -> SimpleNamespace:
        # resolved ones have every key in them
        config = json.loads(shipped(draw.choice(OVERLAYS)))
        return SimpleNamespace(config=resolve(config) if draw.random() < 0.5 else config)

    def damage(self, folder: Path, made: SimpleNamespace, draw: random.Random) -> None:
        made.config = tree_step(made.config, draw, keys())

    def read(self, folder: Path, made: SimpleNamespace) -> None:
        check_resolved(resolve(made.config))


class Files:
    """config.yaml and an overlay with other text or bytes in them."""

    name = "yaml"

    def make(self, folder: Path, draw: random.Random) -> list[Path]:
        names = draw.choice(OVERLAYS)
        sources = [ROOT / "config.yaml", *(ROOT / "config" / f"{name}.yaml" for name in names)]
        for source in sources:
            (folder / source.name).write_bytes(source.read_bytes())
        return [folder / source.name for source in sources]

    def damage(self, folder: Path, made: list[Path], draw: random.Random) -> None:
        file_step(draw.choice(made), draw)

    def read(self, folder: Path, made: list[Path]) -> None:
        base, *overlays = made
        check_resolved(load(*overlays, base=base))


def check_resolved(config: dict[str, Any]) -> None:
    """What is accepted is whole: it resolves to itself, every stage can say its settings, and ESPnet's check ends in a sentence."""
    if not isinstance(config, dict) or resolve(config) != config:
        raise Fault("what is resolved resolves to something else")
    json.dumps(stages.stage_settings(config), allow_nan=False)
    figure_files(stages.report(config))
    check_study(config)


def targets() -> dict[str, Any]:
    """Target's name -> what makes it."""
    return {target.name: target for target in (Values, Files)}
