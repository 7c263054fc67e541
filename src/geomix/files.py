"""Files that appear whole or not at all, their hashes, and locks on folders."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from geomix.errors import UserError


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path`; when the block ends well it is fsynced and renamed to `path`.

    When the block raises, or the disk is full, `path` keeps its old content and the temporary file is removed.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except (FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}): name another place") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"{path}: the disk is full; the previous file is kept: free some space and run again"
            ) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
    # the rename itself must survive a power loss
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """Yield a new folder that takes the place of `out` when the block ends well, and is removed otherwise."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror}): name another place with --out") from None
    building, old = temporary / "new", temporary / "old"
    building.mkdir()
    try:
        yield building
        if out.exists():
            os.rename(out, old)
        os.rename(building, out)
    finally:
        if old.exists() and not out.exists():  # the second rename failed
            os.rename(old, out)
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write `text` (UTF-8) to `path`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, whole or not at all; NaN is refused."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: str | os.PathLike, *keys: str) -> Any:
    """Read JSON, or raise a `UserError` that names the file; with `keys`, an object that has them, or a list of such objects."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_finite, parse_float=_finite)
        for item in value if isinstance(value, list) else [value]:
            lacking = [key for key in keys if not isinstance(item, dict) or key not in item]
            if lacking:
                raise UserError(f"{path}: has no {lacking[0]!r}: remove it and run the step that makes it again")
        return value
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a folder where a file is expected") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # damaged, not UTF-8, a number that Python cannot hold, a nesting without end
        raise UserError(f"{path}: not valid JSON ({error}); remove it and run the step that makes it again") from None


def read_object(path: str | os.PathLike, *keys: str, **kinds: type | tuple[type, ...]) -> dict[str, Any]:
    """Read a JSON object that has `keys`, and those of `kinds` with values of that type; `UserError` names what is not so."""
    found = read_json(path, *keys, *kinds)
    if not isinstance(found, dict):
        raise UserError(f"{path}: not an object of keys and values: remove it and run the step that makes it again")
    for key, kind in kinds.items():
        if not isinstance(found[key], kind) or (isinstance(found[key], bool) and kind is not bool):
            raise UserError(
                f"{path}: its {key!r} is {found[key]!r}, which is not of its kind: remove it and run the step that makes it again"
            )
    return found


def read_objects(path: str | os.PathLike, *keys: str) -> list[dict[str, Any]]:
    """Read a JSON list of objects that have `keys`; `UserError` names what is not so."""
    found = read_json(path, *keys)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UserError(f"{path}: not a list of objects: remove it and run the step that makes it again")
    return found


def _finite(text: str) -> float:
    """A number of JSON; NaN and infinity are none, written out (NaN) or beyond what a float holds (1e999)."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no finite number")
    return value


def folder_of(*paths: str | os.PathLike) -> Path:
    """The folder in which all of a rule's declared files lie, for what reads or writes them together; ValueError if they lie apart."""
    folders = {Path(path).parent for path in paths}
    if len(folders) != 1:
        raise ValueError(f"{', '.join(map(str, paths))}: not the files of one folder")
    return folders.pop()


def sha256(path: str | os.PathLike) -> str:
    """SHA-256 of a file's content, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def folder_lock(folder: str | os.PathLike, doing: str, *, wait: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on `folder` (its `lock` file), or raise a `UserError` that says who holds it.

    The kernel frees the lock when the process dies, however it dies. With `wait`, another holder is waited for.
    """
    folder = Path(folder)
    while (file := _locked(folder, doing, wait)) is None:
        pass
    with file:
        file.truncate(0)
        job = os.environ.get("SLURM_JOB_ID")
        file.write(f"process {os.getpid()} on {os.uname().nodename}" + (f" (Slurm job {job})" if job else ""))
        file.flush()
        yield


def is_collision(sentence: str) -> bool:
    """Whether a sentence is that of `folder_lock` about another holder."""
    return _COLLISION in sentence


_COLLISION = "here: wait for it or stop it, then run again"


def _locked(folder: Path, doing: str, wait: bool) -> TextIO | None:
    """The folder's lock file, locked; None when the folder was removed between the opening and the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        file = open(folder / "lock", "a+")
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / "lock")):
            return file
    except BlockingIOError:
        with file:
            file.seek(0)
            holder = file.read().strip() or "another process"
        raise UserError(f"{folder}: {holder} is {doing} {_COLLISION}") from None
    except FileNotFoundError:
        pass
    file.close()
    return None
