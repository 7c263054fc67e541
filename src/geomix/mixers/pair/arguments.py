"""Arguments of the pair mixer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geomix.errors import UserError
from geomix.mixers.base import Arguments, Count, argument, unique


class CausalPair(Arguments):
    """The pair mixer with past partners alone, as the language model has it."""

    mixer: Literal["pair"] = argument(..., "pairs of tokens at fixed offsets")
    kind: Literal["wedge", "symmetric", "signed", "geometric"] = argument(
        "wedge",
        "product of a pair: wedge (Plücker coordinates), symmetric, signed (random signs, drawn from the seed) or geometric",
    )
    rank: Annotated[int, Field(ge=2)] = argument(32, "width to which a token is reduced before it is paired")
    offsets: Annotated[list[Count], Field(min_length=1), AfterValidator(unique)] = argument(
        [1, 2, 4, 8, 12, 16], "distances to the partners, in frames or tokens"
    )
    one_offset_per_block: bool = argument(False, "block i uses offset i alone, the list repeated")
    form: Literal["anchored", "paper"] = argument("anchored", "the exact fast rewrite, or [Zhang2025]'s own steps")
    empty: Literal["zero", "bias"] = argument("zero", "what a token without a partner receives")
    min_sine: Annotated[float, Field(ge=0, le=1)] = argument(
        1e-3, "sine below which a thin pair is no longer normalised to length 1"
    )
    gate: Literal["article", "add", "none"] = argument(
        "article", "what joins the stream: (1 - alpha)(g - u), add: (1 - alpha) g, none: g without a gate", "article"
    )
    gate_bias: float = argument(0.0, "added to the gate's logit; at 2 the mixer starts nearly closed", 0.0)
    pool: Literal["mean", "sum"] = argument("mean", "what the pairs of a token become: their mean or their sum", "mean")
    normalise: bool = argument(True, "divide a pair's product by its length; false: it says how strong a pair is", True)
    weights: Literal["shared", "offset"] = argument(
        "shared", "one projection for all pairs, or one for each offset", "shared"
    )
    signs: Literal["fixed", "learned"] = argument(
        "fixed", "the signs of the kind, or one learned number for each coordinate, without weight decay", "fixed"
    )
    signs_start: float = argument(-1.0, "where learned signs start: -1 is the wedge, +1 the symmetric control", -1.0)
    feature_dropout: Annotated[float, Field(ge=0, lt=1)] = argument(
        0.0, "probability with which a number of the mixed feature is zeroed in training", 0.0
    )

    @property
    def components(self) -> int:
        """Numbers of a pair's product: one for each two of the `rank`, and the scalar of the geometric product."""
        return self.rank * (self.rank - 1) // 2 + (self.kind == "geometric")

    @property
    def sides(self) -> int:
        """Sides on which a frame has partners."""
        return 1

    @property
    def maps(self) -> int:
        """Projections of pairs."""
        offsets = 1 if self.one_offset_per_block else len(self.offsets)
        return {"shared": 1, "side": 2, "offset": offsets}[self.weights]

    def parameters(self, width: int) -> int:
        """The reduction, the projections, the gate and the signs: 266,784 at width 256 and rank 32, geometric 267,040."""
        projections = self.maps * self.components * width + width
        gate = 0 if self.gate == "none" else 2 * width * width + width
        return width * self.rank + self.rank + projections + gate + self.components * (self.signs == "learned")

    def macs_per_frame(self, width: int, frames: int) -> float:
        """The same maps; [Zhang2025]'s form projects the product of each pair, the anchored one their sum (of learned signs two)."""
        pairs = self.sides * (1 if self.one_offset_per_block else len(self.offsets))
        vectors = self.maps * (1 + (self.signs == "learned")) if self.form == "anchored" else pairs
        gate = 0 if self.gate == "none" else 2 * width * width
        return width * self.rank + vectors * self.components * width + gate

    def check(self, width: int, named: str = "width") -> None:
        """Random signs need three numbers a frame, learned ones no other kind, and a projection for each side both sides."""
        if self.kind == "signed" and self.rank < 3:
            raise UserError(f"rank {self.rank}: random signs need a rank of at least 3")
        if self.signs == "learned" and self.kind != "wedge":
            raise UserError(f"kind {self.kind}: learned signs start where signs_start says: leave kind out")
        if self.weights == "side" and self.sides == 1:
            raise UserError("weights side: the past is the only side: choose shared or offset")


class Pair(CausalPair):
    """The pair mixer: wedge, symmetric, signed or geometric products of a frame with its partners, gated."""

    two_sided: bool = argument(True, "partners on both sides; false: in the past alone")
    weights: Literal["shared", "side", "offset"] = argument(
        "shared",
        "one projection for all pairs, one for the past and one for the future, or one for each offset",
        "shared",
    )

    @property
    def sides(self) -> int:
        """Sides on which a frame has partners."""
        return 2 if self.two_sided else 1
