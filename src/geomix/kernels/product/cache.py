"""Compiled kernels kept on disk: checked before they run, written whole, and never needed.

An object file holds a mark, a digest of its own name and content, and the code. Whatever is wrong with it (cut, overwritten, another
kernel's, unreadable) makes it count as absent: the kernel is compiled anew and the file replaced. A folder that cannot be
made or written costs a compilation a process and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

MARK = b"geomix object 1\n"


def folder(kind: str) -> Path | None:
    """Where generated code is kept: $GEOMIX_CACHE, else $XDG_CACHE_HOME/geomix, else ~/.cache/geomix; None without a home."""
    if root := os.environ.get("GEOMIX_CACHE"):
        return Path(root) / kind
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # the standard has a relative one ignored
        return Path(base) / "geomix" / kind
    with contextlib.suppress(RuntimeError):  # neither $HOME nor an entry in the user database
        return Path.home() / ".cache" / "geomix" / kind
    return None


def load(kind: str, name: str) -> bytes | None:
    """The code stored under a name, or None where there is none that is whole and its own."""
    place = folder(kind)
    if place is None:
        return None
    try:
        content = (place / name).read_bytes()
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None
    start = len(MARK) + 32
    code = content[start:]
    return code if content[:start] == MARK + _digest(name, code) and code else None


def store(kind: str, name: str, code: bytes) -> None:
    """Keep code under a name, whole and on the disk or not at all; nothing is raised and nothing left where that fails."""
    place = folder(kind)
    if place is None:
        return
    temporary = None
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=place)
        with os.fdopen(handle, "wb") as file:
            file.write(MARK + _digest(name, code) + code)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place / name)
        temporary = None
    except (OSError, ValueError):
        pass
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _digest(name: str, code: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + code).digest()
