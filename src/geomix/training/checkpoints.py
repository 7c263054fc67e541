"""The resumable state of a training: whole or not at all, checked when read, with the previous one kept.

A checkpoint is one file: a JSON line (format, SHA-256 of the rest, hash and settings of the training) and what `torch.save`
wrote. It is written beside its name and renamed, the previous checkpoint having been renamed to `previous.ckpt`: whatever
dies at whatever moment, one good file is left.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from geomix.errors import UserError
from geomix.files import atomic_path
from geomix.training.progress import LOG
from geomix.training.store import Layout

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
_FORMAT = "geomix checkpoint 2"


@dataclass(frozen=True)
class Identity:
    """Which training a checkpoint is of.

    hash : `settings.settings_hash` of all that decides its weights; it alone is compared, since it leaves out a key that was
        added later at the value which computes what was computed before
    settings : plain JSON values, kept for reading
    """

    hash: str
    settings: Mapping[str, Any]


class _Damaged(Exception):
    pass


def save_state(folder: Path, state: Mapping[str, Any], identity: Identity) -> None:
    """Write `state` (tensors, numbers, strings, lists and dictionaries of them) as the folder's newest checkpoint.

    On a full disk a UserError is raised and the earlier checkpoints stay.
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    digest = hashlib.sha256(buffer.getbuffer()).hexdigest()
    header = {"format": _FORMAT, "sha256": digest, "hash": identity.hash, "settings": identity.settings}
    last = folder / LAST
    with atomic_path(last) as temporary:
        _write(temporary, header, buffer.getbuffer())
        if last.exists():  # only now, when the new one is whole on disk
            os.replace(last, folder / PREVIOUS)


def _write(path: Path, header: Mapping[str, Any], content: bytes | memoryview) -> None:
    with open(path, "wb") as file:
        file.write(json.dumps(header, sort_keys=True).encode() + b"\n")
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def relabel(source: Path, target: Path, name: str, epochs: int) -> None:
    """Write the checkpoint `source` to `target` as that of a training of `epochs` epochs whose hash is `name`.

    A damaged one is a ValueError.
    """
    try:
        header, content = _open(source, payload=True)
    except _Damaged:
        raise ValueError(f"its {source.name} is damaged") from None
    settings = header["settings"]
    settings = {**settings, "training": {**settings["training"], "epochs": epochs}}
    _write(target, {**header, "hash": name, "settings": settings}, content)


LAYOUT = Layout((LAST, PREVIOUS), "epoch-{}.safetensors", (LOG,), relabel)
"""Names of the files in a state folder of `loop.Trainer`."""


def _open(path: Path, payload: bool) -> tuple[dict[str, Any], bytes]:
    try:
        with open(path, "rb") as file:
            header = json.loads(file.readline())
            content = file.read() if payload else b""
        if header["format"] != _FORMAT or not isinstance(header["settings"], dict) or "hash" not in header:
            raise _Damaged
        if payload and hashlib.sha256(content).hexdigest() != header["sha256"]:
            raise _Damaged
    except (ValueError, KeyError, TypeError) as error:
        raise _Damaged from error
    return header, content


def read_settings(folder: Path) -> dict[str, Any]:
    """Settings of the run whose state lies in `folder`, read from the head of its checkpoint."""
    for name in (LAST, PREVIOUS):
        try:
            return _open(folder / name, payload=False)[0]["settings"]
        except (FileNotFoundError, _Damaged):
            continue
    raise UserError(
        f"{folder}: no checkpoint of a training here (removed, or forgotten): force its record to train anew, "
        "snakemake --forcerun results/<run>/<track>/<arm>/seed<n>/record.json"
    )


def load_state(folder: Path, identity: Identity, map_location: Any = "cpu") -> tuple[dict[str, Any] | None, str | None]:
    """The newest whole checkpoint in `folder`, or None, and a sentence if a newer one was damaged, or None.

    Raises UserError when the folder holds a training of another hash, or checkpoints of which none can be read.
    """
    damaged: list[str] = []
    for name in (LAST, PREVIOUS):
        try:
            header, content = _open(folder / name, payload=True)
        except FileNotFoundError:
            continue
        except _Damaged:
            damaged.append(str(folder / name))
            continue
        if header["hash"] != identity.hash:
            wanted = json.loads(json.dumps(identity.settings))
            raise UserError(
                f"{folder / name}: a training of other settings ({_difference(header['settings'], wanted)}): "
                "give this run another state folder, or remove this one"
            )
        state = torch.load(io.BytesIO(content), map_location=map_location, weights_only=True)
        if damaged:  # or the next save would keep it in the place of the good one
            (folder / LAST).unlink()
            return state, f"{damaged[0]} was damaged: going on from {name}"
        return state, None
    if damaged:
        raise UserError(
            f"{' and '.join(damaged)}: damaged, and no earlier checkpoint is left: remove the folder to train from the start"
        )
    return None, None


def _difference(there: Any, wanted: Any, path: str = "") -> str:
    """The first key at which two settings differ, with both values."""
    if isinstance(there, dict) and isinstance(wanted, dict):
        for key in sorted({*there, *wanted}):
            if there.get(key) != wanted.get(key):
                return _difference(there.get(key), wanted.get(key), f"{path}.{key}" if path else key)
    return f"{path or 'the whole'} is {there!r} there, {wanted!r} here"
