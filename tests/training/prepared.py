"""What the trainings' tests of several tracks share: summaries of splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geomix.files import write_json


def write_summaries(corpus: dict[str, Any], root: Path) -> None:
    """`<root>/<split>/split.json` of train and dev from the content of `prepare_corpus`."""
    for split in ("train", "dev"):
        about = {"corpus": corpus["name"], "kind": corpus["kind"], "split": split, "dropped": corpus["dropped"][split]}
        write_json(root / split / "split.json", about | corpus["splits"][split])
