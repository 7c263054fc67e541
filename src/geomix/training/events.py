"""A training's log as event files for TensorBoard, beside log.jsonl and from the same lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

EVENTS = "tensorboard"


class Lines(Protocol):
    """What takes the lines of a log."""

    def append(self, **values: Any) -> None: ...


class WithEvents:
    """A log that also writes each number of a line as a scalar `<kind>/<name>` at its update.

    Events after `update`, the point from which a training goes on, are purged.
    """

    def __init__(self, log: Lines, folder: Path, update: int):
        from tensorboardX import SummaryWriter

        self._log = log
        self._writer = SummaryWriter(str(folder), purge_step=update + 1)

    def append(self, *, kind: str, update: int, **values: Any) -> None:
        """Add a line to the log and its numbers to the events."""
        self._log.append(kind=kind, update=update, **values)
        for name, value in values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self._writer.add_scalar(f"{kind}/{name}", value, update)
        self._writer.flush()
