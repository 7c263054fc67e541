"""What a training says of itself: `log.jsonl`, a line on standard error, and the reading of both by `geomix status`."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOG = "log.jsonl"


class Log:
    """A run's `log.jsonl`, one JSON object a line, appended; cut back when the run resumes from an earlier point."""

    def __init__(self, path: Path, length: int = 0):
        """Open `path`, keeping its first `length` bytes: what a checkpoint said was there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab")
        self._file.truncate(min(length, os.path.getsize(path)))

    def append(self, **values: Any) -> None:
        """Add a line; NaN and infinities become null."""
        clean = {k: None if isinstance(v, float) and not abs(v) < float("inf") else v for k, v in values.items()}
        self._file.write(json.dumps(clean, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def synchronised_length(self) -> int:
        """Bytes of the log, all of them on disk."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; one that a kill cut short, or that names no epoch, is left out."""
    lines = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict) and isinstance(value.get("epoch"), int):
                lines.append(value)
    return lines


def duration(seconds: float) -> str:
    """Seconds in a person's units: 42 s, 12 min, 3.4 h."""
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def say(text: str) -> None:
    """Print one line on standard error, at once."""
    print(text, file=sys.stderr, flush=True)


def _number(value: Any) -> float | None:
    """A finite number of a log line, or None."""
    right = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return value if right else None


@dataclass(frozen=True)
class Progress:
    """Where a training stands: its last log lines and whether a process holds its state folder."""

    alive: bool
    epoch: int
    update: int
    time_left: float | None
    loss: float | None
    quiet_for: float


def read_progress(state_dir: Path) -> Progress | None:
    """Progress of the training in `state_dir`, or None where none ever started.

    The lock is asked of the kernel: a process that died, however it died, does not hold it.
    """
    lock = state_dir / "lock"
    if not lock.exists():
        return None
    with open(lock, encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            alive = False
        except BlockingIOError:
            alive = True
    log = state_dir / LOG
    lines = read_log(log) if log.exists() else []
    last = next((line for line in reversed(lines) if line.get("kind") == "step"), {})
    newest = lines[-1] if lines else {}
    return Progress(
        alive=alive,
        epoch=newest.get("epoch", 0),
        update=int(_number(newest.get("update")) or 0),
        time_left=_number(last.get("time_left_s")),
        loss=_number(last.get("loss")),
        quiet_for=time.time() - log.stat().st_mtime if log.exists() else 0.0,
    )
