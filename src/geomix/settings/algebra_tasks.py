"""Phase 1's tasks as they were declared before the study ran: sizes, metrics, factors, and what each arm is expected to do.

`geomix.studies.algebra.tasks` gives each its data; the page of phase 1 sets what was found beside what stands here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Expectation:
    """What theory and earlier measurements say of an arm on a task, beside Clifford: `worse`, `tie` or `better`."""

    arm: str
    outcome: str
    why: str


@dataclass(frozen=True)
class Declared:
    """What was said of a task before the run.

    samples : of training.
    metric : "nmse" (squared error over the target's variance), "sign" (share of wrong signs) or "angle" (median, degrees).
    factor : an arm separates from Clifford when its error is at least so many times Clifford's.
    all_plus_fails : whether the all-plus table is a negative control here (the target needs orientation).
    null : whether there is no geometry to find.
    """

    name: str
    title: str
    samples: int
    metric: str = "nmse"
    factor: float = 10.0
    all_plus_fails: bool = True
    null: bool = False
    expected: tuple[Expectation, ...] = ()


_SHARED = (
    "the even subalgebra of Cl(0,3) is that of Cl(3) with the bivectors' signs turned, which a weight per grade absorbs"
)
_QUATERNION = "the even subalgebra of Cl(3) is the quaternions: the same model"
_GAUGE = "the same algebra under other names"
_SIGNS = "composition needs the table's own signs"
_PLUS = "without signs no order and no orientation"
_SCALAR = "a general network must find a polynomial of degree 3 from few samples"
_FEW = "few signs are used: a random table has them all right in part of the draws, so it shows some tables worse, some tied"

DECLARED: dict[str, Declared] = {
    task.name: task
    for task in (
        Declared(
            "fixed_rotation", "fixed rotation x -> R x ~R from 16 noisy pairs", 16,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "worse", "(A x) B is no rotation in another table"),
                Expectation("all_plus", "worse", _PLUS),
                Expectation("other_signature", "tie", "a rotation turns all grades as its vectors: the same matrix in Cl(0,3)"),
                Expectation("mixed_signature", "worse", "sandwiches of Cl(2,1) make boosts"),
                Expectation("quaternion", "tie", "a rotation is one quaternion sandwich on each of the two halves"),
                Expectation("complex", "worse", "no rotation is a complex matrix of rank 1"),
                Expectation("low_rank", "worse", "a rotation has rank 8"), Expectation("grouped", "worse", "rotations mix the blocks"),
                Expectation(
                    "dense", "tie", "it holds every rotation with 64 numbers: about sigma^2 8 / (N - 9) = 3e-3 beside 3e-4, a factor of 9",
                ),
                Expectation("shuffled_4", "worse", "four terms of a random table span most maps, at four times the numbers"),
                Expectation("clifford_4", "tie", "it holds the truth with four times the numbers: 3 to 4 times the error"),
            ),
        ),
        Declared(
            "rotors_spin3", "rotor composition R3 R2 R1 in Spin(3)", 512,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "worse", _SIGNS),
                Expectation("all_plus", "worse", _PLUS), Expectation("other_signature", "tie", _SHARED),
                Expectation("mixed_signature", "worse", "Spin(2,1) is another group"),
                Expectation("quaternion", "tie", _QUATERNION), Expectation("dense", "worse", _SCALAR),
            ),
        ),
        Declared(
            "rotors_spin4", "rotor composition R3 R2 R1 in Spin(4)", 512,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "worse", _SIGNS),
                Expectation("all_plus", "worse", _PLUS), Expectation("other_signature", "tie", _SHARED),
                Expectation("mixed_signature", "worse", "Spin(2,2) is another group"),
                Expectation(
                    "quaternion", "tie",
                    "Spin(4) is two copies of the unit quaternions, R = q + e1234 q' with e1234 central in the even subalgebra: "
                    "two quaternion channels hold it (an earlier note expected the quaternions to lose)",
                ),
                Expectation("dense", "worse", _SCALAR),
            ),
        ),
        Declared(
            "versors_pin3", "composition with reflections in Pin(3)", 512,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "worse", _SIGNS),
                Expectation("all_plus", "worse", _PLUS),
                Expectation(
                    "other_signature", "tie",
                    "Cl(0,3) differs from Cl(3) by signs that depend on the three grades alone; channels can hold the "
                    "cases apart, at some cost",
                ),
                Expectation("mixed_signature", "worse", "Pin(2,1) is another group"),
                Expectation("quaternion", "tie", "Cl(3) is q + e123 q' with e123 central: two quaternion channels hold it"),
                Expectation("dense", "worse", _SCALAR),
            ),
        ),
        Declared(
            "intersection", "meet of two planes <B1 B2>_2", 128,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "mixed", _FEW),
                Expectation("all_plus", "worse", "the commutator of a commutative table vanishes"),
                Expectation("other_signature", "tie", _SHARED), Expectation("quaternion", "tie", _QUATERNION),
                Expectation("dense", "worse", _SCALAR),
            ),
        ),
        Declared(
            "orientation", "orientation of three vectors, <abc>_3", 512, metric="sign",
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "mixed", _FEW),
                Expectation("all_plus", "worse", "a symmetric function of the vectors' order: chance"),
                Expectation("other_signature", "tie", "the volume does not depend on the metric"),
                Expectation("mixed_signature", "tie", "the volume does not depend on the metric"),
                Expectation("dense", "worse", _SCALAR),
            ),
        ),
        Declared(
            "analogy", "a is to b as c is to <(1+ba) c (1+ab)>_1 / 4", 1024, all_plus_fails=False,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "worse", _SIGNS),
                Expectation(
                    "all_plus", "tie",
                    "no negative control here: the target is built of dot products and vectors, and <ab>_0 is a . b without "
                    "signs too (earlier: 6e-4 to 5e-3 beside 7e-5 to 2e-4)",
                ),
                Expectation("other_signature", "tie", "a . b and the wedge are there up to signs of grades"),
                Expectation("mixed_signature", "worse", "a . b of another metric"), Expectation("dense", "worse", _SCALAR),
            ),
        ),
        Declared(
            "plane", "oriented plane of six noisy points", 512, metric="angle", factor=1.5,
            expected=(
                Expectation("gauge", "tie", "the same algebra, its signs put on inputs and targets as well"),
                Expectation("shuffled", "tie", "a bivector coordinate needs one pair that anticommutes, or any pair of channels"),
                Expectation("all_plus", "worse", _PLUS), Expectation("other_signature", "tie", _SHARED),
                Expectation("dense", "tie", "noise of the points is most of the error (earlier: 8 against 6 degrees)"),
            ),
        ),
        Declared(
            "null_teacher", "null: random tanh network", 1024, factor=1.1, all_plus_fails=False, null=True,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "tie", "there is no geometry to find"),
                Expectation("all_plus", "tie", "there is no geometry to find"),
                Expectation("dense", "better", "the teacher is a network of its kind"),
            ),
        ),
        Declared(
            "null_product", "null: coefficientwise product", 512, factor=1.1, all_plus_fails=False, null=True,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "tie", "no table holds it"),
                Expectation("all_plus", "tie", "no table holds it"),
                Expectation("dense", "better", "it may treat components one by one"),
            ),
        ),
    )
}  # fmt: skip
