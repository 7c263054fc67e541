"""Adoption and nonlinearities as they were declared before the run: arms, controls and what is expected of them."""

from __future__ import annotations

from dataclasses import dataclass

from geomix.settings.algebra import Activation, AdoptedArm


@dataclass(frozen=True)
class Adopted:
    """What takes the place of trained feed-forward modules.

    kind : `none` (trained on as it is), `widened` (further inner units, to the parameters of the multivector form) or `multivector`
    table : `true` or `shuffled`; scratch : random maps instead of the scalar weights on grade 0
    staged : the first half of the blocks, then all, half of the updates each; by_grade : factors on the learning rate
    """

    what: str
    kind: str = "multivector"
    table: str = "true"
    scratch: bool = False
    staged: bool = False
    by_grade: tuple[float, ...] = ()


ADOPTED: dict[str, Adopted] = {
    "continued": Adopted("nothing: the trained scalar model goes on", "none"),
    "widened": Adopted("further scalar units, which start without effect, to the same parameters", "widened"),
    "clifford": Adopted("multivector maps with the scalar weights on grade 0, all blocks at once"),
    "shuffled": Adopted("the same under random signs", table="shuffled"),
    "staged": Adopted("the same as `clifford`, one half of the blocks first", staged=True),
    "slow": Adopted("the same as `clifford`, grade 2 at 0.3 times the learning rate", by_grade=(1.0, 1.0, 0.3)),
    "scratch": Adopted("the same maps from random weights", scratch=True),
}
assert tuple(ADOPTED) == AdoptedArm.__args__

FACTOR = 2.0
"""A nonlinearity is better than another where its median error is below the other's by this factor."""
ACTIVATIONS: dict[str, str] = {
    "norm": "each grade's magnitude n to n sigmoid(a n + b); equivariant",
    "component": "GELU on each coefficient; not equivariant",
    "gate": "GELU on each coefficient and a learned gate per grade; not equivariant",
    "none": "the control without one: a linear network",
}
assert tuple(ACTIVATIONS) == Activation.__args__
NONLINEAR_TASKS = ("analogy", "orientation", "null_teacher")
"""Tasks of phase 1: rotations of vectors, which all three could learn; a volume, which no function of magnitudes alone gives; a null."""
TABLES = ("clifford", "shuffled")
