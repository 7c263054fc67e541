"""Arguments of the convolution mixer."""

from __future__ import annotations

from typing import Literal

from geomix.errors import UserError
from geomix.mixers.base import Arguments, Count, argument


class CausalConvolution(Arguments):
    """A gated depthwise convolution over the tokens up to each one, as the language model has it."""

    mixer: Literal["convolution"] = argument(..., "a gated depthwise convolution over time")
    kernel: Count = argument(33, "frames that it reads, odd: 33 reach 16 each way, or 32 back where it is causal")

    def parameters(self, width: int) -> int:
        """The gated map in, the taps with a bias, a LayerNorm and the map out: 206,592 at width 256."""
        return (2 * width * width + 2 * width) + (self.kernel + 1) * width + 2 * width + (width * width + width)

    def macs_per_frame(self, width: int, frames: int) -> float:
        """The two maps and the taps."""
        return 3 * width * width + self.kernel * width

    def check(self, width: int, named: str = "width") -> None:
        """The kernel has a middle."""
        if self.kernel % 2 == 0:
            raise UserError(f"kernel {self.kernel}: choose an odd number, whose middle is the frame itself")


class Convolution(CausalConvolution):
    """A second gated depthwise convolution, the plainest local mixer."""

    causal: bool = argument(False, "a frame reads no later one")
