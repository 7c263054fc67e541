"""Arguments of attention within blocks."""

from __future__ import annotations

from typing import Literal

from geomix.mixers.base import Arguments, Count, argument, check_heads


class BlockedAttention(Arguments):
    """Granite Speech's attention within blocks, linear in the length."""

    mixer: Literal["blocked_attention"] = argument(..., "attention within blocks")
    heads: Count = argument(4, "attention heads; they must divide the width")
    context: Count = argument(100, "frames in a block")

    def parameters(self, width: int) -> int:
        """Four maps, the output's with a bias, and a vector for each distance inside a window."""
        return 4 * width * width + width + (2 * self.context - 1) * (width // self.heads)

    def macs_per_frame(self, width: int, frames: int) -> float:
        """Four maps, and the products with a window's keys, distances and values."""
        size = min(self.context, frames)
        return 4 * width * width + width * (size + (2 * size - 1) + size)

    def check(self, width: int, named: str = "width") -> None:
        """The heads must divide the width."""
        check_heads(self.heads, width, named)
