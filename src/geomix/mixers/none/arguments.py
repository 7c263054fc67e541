"""Arguments of an empty slot: none."""

from __future__ import annotations

from typing import Literal

from geomix.mixers.base import Arguments, argument


class NoMixer(Arguments):
    """An empty mixer slot."""

    mixer: Literal["none"] = argument(..., "no mixer")

    def parameters(self, width: int) -> int:
        """None."""
        return 0

    def macs_per_frame(self, width: int, frames: int) -> float:
        """None."""
        return 0
