"""Arguments of attention over multivectors."""

from __future__ import annotations

from math import comb
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from geomix.errors import UserError
from geomix.mixers.base import Arguments, Count, argument, unique

_Whole = Annotated[int, Field(ge=0)]
_Signature = Annotated[list[_Whole], Field(min_length=3, max_length=3)]
_Grades = Annotated[list[_Whole], Field(min_length=1), AfterValidator(unique)]


class CausalMultivectorAttention(Arguments):
    """Attention over multivectors that reads no later token, as the language model has it."""

    version: ClassVar[int] = 2

    mixer: Literal["multivector_attention"] = argument(..., "attention whose queries and keys are multivectors")
    heads: Count = argument(4, "attention heads; heads times components must divide the width")
    signature: _Signature = argument([3, 0, 0], "numbers of basis vectors that square to +1, -1 and 0")
    grades: _Grades | None = argument(None, "grades that are retained; null: all")
    temperature: Literal["head", "grade", "dot"] = argument(
        "head", "a learned temperature for each head, or for each head and grade; dot: the ordinary score"
    )
    rotors: bool = argument(False, "turn queries and keys by learned rotors of the position")
    base: Annotated[float, Field(gt=0)] = argument(10000.0, "base of the rotors' angles, as in rotary positions")
    value_terms: _Whole = argument(0, "terms of the values' map v -> sum of A v B; 0: none")

    @property
    def reads_later(self) -> bool:
        """Whether a frame reads later ones."""
        return False

    @property
    def retained(self) -> list[int]:
        """The grades that are retained, in order."""
        return sorted(range(sum(self.signature) + 1) if self.grades is None else self.grades)

    @property
    def components(self) -> int:
        """Numbers of a multivector."""
        return sum(comb(sum(self.signature), grade) for grade in self.retained)

    def parameters(self, width: int) -> int:
        """Four maps with a bias, temperatures, a bivector for each channel, and two multivectors for each term of the values' map."""
        temperatures = {"head": 1, "grade": len(self.retained), "dot": 0}[self.temperature] * self.heads
        bivectors = width // self.heads // self.components * comb(sum(self.signature), 2) * self.rotors
        return 4 * width * width + 4 * width + temperatures + bivectors + 2 * self.value_terms * width

    def macs_per_frame(self, width: int, frames: int) -> float:
        """Four maps, the products with keys and values (half of them where no later frame is read), rotors and the values' map."""
        scores = width * frames * (2 if self.reads_later else 1)
        return 4 * width * width + scores + width * self.components * (2 * self.rotors + (self.value_terms > 0))

    def check(self, width: int, named: str = "width") -> None:
        """The components must divide the width of a head, and the options need certain vectors and grades."""
        n, positive, negative = sum(self.signature), *self.signature[:2]
        if self.retained[-1] > n:
            raise UserError(f"grades {self.grades}: {n} basis vectors have no grade {self.retained[-1]}: leave it out")
        if width % (self.heads * self.components):
            raise UserError(
                f"heads {self.heads} of {self.components} components do not split {named} {width}: it must be a multiple of "
                f"{self.heads * self.components}"
            )
        if self.rotors and max(positive, negative) < 2:
            raise UserError(
                f"rotors: signature {self.signature} has no two vectors with equal squares to turn: add one"
            )
        if self.value_terms and 0 not in self.retained:
            raise UserError(f"value_terms {self.value_terms}: the values' map starts from the scalar 1: retain grade 0")


class MultivectorAttention(CausalMultivectorAttention):
    """Attention over multivectors: score <q ~k>_0 / tau, rotor positions, a map of the values."""

    causal: bool = argument(False, "a frame reads no later frame")

    @property
    def reads_later(self) -> bool:
        """Whether a frame reads later ones."""
        return not self.causal
