"""The prepared files that a training of speech recognition reads."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_object, sha256
from geomix.training.record import Dropped


@dataclass(frozen=True)
class PreparedData:
    """The prepared files that a training reads: summaries (split.json), features by their data files (.f32), the tokenizer by its folder."""

    train_summary: Path
    dev_summary: Path
    train_manifest: Path
    train_features: Sequence[Path]
    dev_manifests: Sequence[Path]
    dev_features: Sequence[Path]
    normalisation: Path
    tokenizer: Path

    @classmethod
    def of(cls, files: Any) -> PreparedData:
        """From an object with the workflow's inputs of a training as attributes; `dev_manifest` and `dev_features` are single files."""
        return cls(
            train_summary=Path(files.train_summary),
            dev_summary=Path(files.dev_summary),
            train_manifest=Path(files.train_manifest),
            train_features=[Path(path) for path in files.train_features],
            dev_manifests=[Path(files.dev_manifest)],
            dev_features=[Path(files.dev_features)],
            normalisation=Path(files.normalisation),
            tokenizer=Path(files.tokenizer).parent,
        )

    @functools.cached_property
    def hashes(self) -> dict[str, str]:
        """Hashes of the splits read, of the normalisation and of the tokenizer: with the settings, all that matters."""
        return {
            "train": read_summary(self.train_summary)["hash"],
            "dev": read_object(self.dev_summary, hash=str)["hash"],
            "normalisation": sha256(self.normalisation),
            "tokenizer": sha256(Path(self.tokenizer) / "tokenizer.model"),
        }


def read_summary(path: Path) -> dict[str, Any]:
    """The training set's split.json with all that a record says of it: wrong, it is told before the training, not after it."""
    found = read_object(path, "speed_histogram", hash=str, utterances=int, seconds=(int, float), dropped=dict)
    if not all(isinstance(found["dropped"].get(key), list) for key in ("too_short", "too_long")):
        raise UserError(f"{path}: does not list what was dropped: prepare the split again")
    return found


def read_counts(summary: Path) -> dict[str, Any]:
    """What a record says of the training set of a split.json."""
    train = read_summary(summary)
    return {key: train[key] for key in ("utterances", "seconds", "speed_histogram")}


def read_dropped(summary: Path) -> Dropped:
    """What preparation left out of the training set of a split.json."""
    dropped = read_summary(summary)["dropped"]
    return Dropped(dropped["too_short"], len(dropped["too_long"]))


def known_hashes(folders: Mapping[str, Path]) -> dict[str, str]:
    """Hashes of the splits train and dev in their folders (`stages.split_key` names them), of those that are prepared."""
    summaries = {split: Path(folder) / "split.json" for split, folder in folders.items() if split in ("train", "dev")}
    hashes = {split: read_object(path).get("hash") for split, path in summaries.items() if path.is_file()}
    return {split: value for split, value in hashes.items() if value}
