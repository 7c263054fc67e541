"""Which frames are paired, and how their pairs become one feature: the small spec that every form takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

PAST, FUTURE = 0, 1


@dataclass(frozen=True)
class Pairing:
    """Frame t is paired with t - d and, two-sided, with t + d, for each d of `offsets`; the earlier frame is the first argument.

    Attributes:
        offsets: distances between partners, in frames, positive and distinct.
        two_sided: pair with later frames too.
        pool: "mean" over the valid pairs of a frame, or their "sum".
        normalise: divide each product by its normaliser; False leaves its length, which says how strong a pair is.
        weights: projections: one "shared" by all pairs, one for each "side", or one for each "offset" (both sides use it). Side by
            side they are one matrix (D, maps * K).
        side_weights: factors of the pairs with earlier and with later frames; 0 leaves a side out, of the mean as well.
        min_sine, eps: see `PairProduct.normaliser`.
    """

    offsets: tuple[int, ...]
    two_sided: bool = True
    pool: str = "mean"
    normalise: bool = True
    weights: str = "shared"
    side_weights: tuple[float, float] = (1.0, 1.0)
    min_sine: float = 1e-3
    eps: float = 1e-6

    @property
    def sides(self) -> tuple[int, ...]:
        """The sides on which there are partners: PAST, FUTURE or both."""
        able = (PAST, FUTURE) if self.two_sided else (PAST,)
        return tuple(side for side in able if self.side_weights[side])

    @property
    def maps(self) -> int:
        """Number of projections."""
        return {"shared": 1, "side": 2, "offset": len(self.offsets)}[self.weights]

    def map_of(self, side: int, number: int) -> int:
        """Which projection serves the pairs of a side at the offset of this number."""
        return {"shared": 0, "side": side, "offset": number}[self.weights]

    def split(self, weight: Tensor) -> Sequence[Tensor]:
        """The projections (D, K) of the matrix (D, maps * K) that holds them."""
        return [weight] if self.maps == 1 else weight.chunk(self.maps, dim=1)

    def pooled(self, total: Tensor, count: Tensor) -> Tensor:
        """A sum over the valid pairs of each frame (B, T, ...) as what `pool` makes of it; count (B, T)."""
        return total if self.pool == "sum" else total / count.clamp_min(1).to(total.dtype).unsqueeze(-1)
