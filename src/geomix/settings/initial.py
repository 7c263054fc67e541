"""The trained model that a training starts from: where it lies, and what it is by its content."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import sha256

FILES = {"weights": "model.safetensors", "tokens": "tokens.txt"}
"""What of a model folder decides the weights that a training starts with."""


def initial_weights(pattern: str, arm: str, seed: int) -> dict[str, str]:
    """{folder, weights, tokens} of `training.init_from` for one training: its folder and the hashes of two files there.

    Raises
    ------
    UserError
        When there is no trained model.
    """
    folder = Path(os.path.expandvars(pattern).replace("{arm}", arm).replace("{seed}", str(seed)))
    found = {"folder": str(folder)}
    for what, name in FILES.items():
        try:
            status = os.stat(folder / name)
            found[what] = _hash(str(folder / name), status.st_size, status.st_mtime_ns)
        except OSError as error:
            raise UserError(
                f"config: training.init_from: {folder / name}: cannot be read ({error.strerror}): give the folder of a "
                f"trained model for arm {arm}, seed {seed}"
            ) from None
    return found


@functools.cache
def _hash(path: str, size: int, mtime_ns: int) -> str:
    """Of a file as it stands: every arm and seed, and every check of the settings, asks for it."""
    return sha256(path)


def without_place(origin: Mapping[str, Any]) -> dict[str, Any]:
    """What a training's hash takes of it: wherever the folder lies."""
    return {key: value for key, value in origin.items() if key != "folder"}
