"""What the store's tests of several tracks share: summaries of splits, and settings that hold what decides weights alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geomix.files import write_json

SELECTS = ("keep_best", "best_by", "detect_after")


def write_summaries(corpus: dict[str, Any], root: Path) -> None:
    """`<root>/<split>/split.json` of train and dev from the content of `prepare_corpus`."""
    for split in ("train", "dev"):
        about = {"corpus": corpus["name"], "kind": corpus["kind"], "split": split, "dropped": corpus["dropped"][split]}
        write_json(root / split / "split.json", about | corpus["splits"][split])


def only_weights(settings: dict[str, Any]) -> dict[str, Any]:
    """A training's settings without what selects epochs or watches over it, and without what the data were made with."""
    training = {key: value for key, value in settings["training"].items() if key not in SELECTS}
    return {**{key: value for key, value in settings.items() if key != "data"}, "training": training}
