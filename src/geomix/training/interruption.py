"""SIGTERM and Ctrl-C as a wish to stop, heard where a training can stop without losing anything."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Stopped(Exception):
    """The run was told to stop."""


class StopSignal:
    """SIGTERM and Ctrl-C as a wish to stop: noted, and raised as `Stopped` inside an `interruptible` block."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._interruptible = False

    def __enter__(self) -> StopSignal:
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: object) -> None:
        self.name = signal.Signals(number).name
        if self._interruptible:
            raise Stopped

    def check(self) -> None:
        """Raise `Stopped` when the wish was noted."""
        if self.name:
            raise Stopped

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """A block that changes nothing and may be long: left at once when told to stop."""
        self._interruptible = True
        try:
            self.check()
            yield
        finally:
            self._interruptible = False
