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

    @property
    def components(self) -> int:
        """Numbers of a pair's product: one for each two of the `rank`, and the scalar of the geometric product."""
        return self.rank * (self.rank - 1) // 2 + (self.kind == "geometric")

    @property
    def sides(self) -> int:
        """Sides on which a frame has partners."""
        return 1

    def parameters(self, width: int) -> int:
        """The reduction, the projection and the gate: 266,784 at width 256 and rank 32, geometric 267,040."""
        return (width * self.rank + self.rank) + (self.components * width + width) + (2 * width * width + width)

    def macs_per_frame(self, width: int, frames: int) -> float:
        """The same maps; the form `paper` projects the product of each pair, the anchored one their sum."""
        pairs = self.sides * (1 if self.one_offset_per_block else len(self.offsets))
        vectors = 1 if self.form == "anchored" else pairs
        return width * self.rank + vectors * self.components * width + 2 * width * width

    def check(self, width: int, named: str = "width") -> None:
        """Random signs need three numbers a frame."""
        if self.kind == "signed" and self.rank < 3:
            raise UserError(f"rank {self.rank}: random signs need a rank of at least 3")


class Pair(CausalPair):
    """The pair mixer: wedge, symmetric, signed or geometric products of a frame with its partners, gated."""

    two_sided: bool = argument(True, "partners on both sides; false: in the past alone")

    @property
    def sides(self) -> int:
        """Sides on which a frame has partners."""
        return 2 if self.two_sided else 1
