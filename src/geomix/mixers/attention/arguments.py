"""Arguments of self-attention."""

from __future__ import annotations

from typing import Literal

from geomix.mixers.base import Arguments, Count, argument, check_heads


class Attention(Arguments):
    """Relative-position self-attention, as the Conformer has it."""

    mixer: Literal["attention"] = argument(..., "self-attention")
    heads: Count = argument(4, "attention heads; they must divide the width")

    def parameters(self, width: int) -> int:
        """Five maps, four with a bias, and the biases u and v of the positions: 329,216 at width 256."""
        return 5 * width * width + 6 * width

    def macs_per_frame(self, width: int, frames: int) -> float:
        """Four maps (`linear_pos` is shared over a batch and left out), and the products with keys, positions and values."""
        return 4 * width * width + width * (frames + (2 * frames - 1) + frames)

    def check(self, width: int, named: str = "width") -> None:
        """The heads must divide the width."""
        check_heads(self.heads, width, named)


class CausalAttention(Attention):
    """Causal self-attention without positions of its own, as the language model has it."""

    def parameters(self, width: int) -> int:
        """Four maps with a bias."""
        return 4 * width * width + 4 * width

    def macs_per_frame(self, width: int, frames: int) -> float:
        """Four maps, and the products with the keys and values up to each token: half of them."""
        return 4 * width * width + width * frames
