"""Arguments of the Fourier mixer."""

from __future__ import annotations

import math
from typing import Literal

from geomix.mixers.base import Arguments, argument


class Fourier(Arguments):
    """FNet's mixing by Fourier transforms over time and width, without parameters (arXiv 2105.03824)."""

    mixer: Literal["fourier"] = argument(..., "Fourier transforms over each utterance and over the width")

    def parameters(self, width: int) -> int:
        """None."""
        return 0

    def macs_per_frame(self, width: int, frames: int) -> float:
        """Those of two fast transforms of real numbers, 5/4 n log2 n multiply-adds of n numbers each."""
        return 1.25 * width * (math.log2(width) + math.log2(frames)) if frames > 1 else 1.25 * width * math.log2(width)
