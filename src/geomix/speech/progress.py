"""One progress line on standard error for work over many recordings."""

from __future__ import annotations

import sys
import time


class Progress:
    """Counts utterances and audio seconds; prints rate and time left, in place on a terminal, else every 15 s."""

    def __init__(self, what: str, utterances: int):
        self.what, self.utterances = what, utterances
        self._done = 0
        self._done_seconds = 0.0
        self._start = self._shown = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def add(self, utterances: int, seconds: float) -> None:
        """Count work done, and show the line when it is due."""
        self._done += utterances
        self._done_seconds += seconds
        now = time.monotonic()
        if now - self._shown >= (0.2 if self._terminal else 15):
            self._shown = now
            self._show("\r" if self._terminal else "", "" if self._terminal else "\n")

    def close(self) -> None:
        """Show the final line."""
        self._show("\r" if self._terminal else "", "\n")

    def _show(self, start: str, end: str) -> None:
        spent = max(time.monotonic() - self._start, 1e-9)
        rate = self._done_seconds / spent
        left = spent * (self.utterances / max(self._done, 1) - 1)
        print(
            f"{start}{self.what}: {self._done}/{self.utterances} utterances, {rate:,.0f} audio-s/s, {left:,.0f} s left",
            end=end,
            file=sys.stderr,
            flush=True,
        )
