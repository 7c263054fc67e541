"""Phase 1's tasks: small problems whose geometry is known, and two nulls that have none.

Definitions after the k-blade article, section 7, with sizes that were tried out. Each draw depends on (task, seed, split) alone, so
that all arms and tables see the same data. What each task is expected to show was written down with it, before the study ran.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from geomix.algebra import Algebra
from geomix.algebra.operations import convert, product, project, reverse
from geomix.algebra.rotors import exp
from geomix.errors import UserError
from geomix.training.seeding import generator

TEST_SAMPLES = 1024
POINTS, POINT_NOISE = 6, 0.143


@dataclass(frozen=True)
class Draws:
    """Random numbers for `count` samples of a split; `seed` names the fixed teacher of a null; `beyond`: out of the training range."""

    generator: torch.Generator
    count: int
    seed: int
    beyond: bool = False

    def normal(self, *shape: int) -> Tensor:
        """(count, *shape) standard normal numbers, fp64."""
        return torch.randn(self.count, *shape, generator=self.generator, dtype=torch.float64)

    def uniform(self, *shape: int) -> Tensor:
        """(count, *shape) numbers in [0, 1), fp64."""
        return torch.rand(self.count, *shape, generator=self.generator, dtype=torch.float64)

    def unit(self, *shape: int) -> Tensor:
        """(count, *shape) vectors of length 1."""
        return torch.nn.functional.normalize(self.normal(*shape), dim=-1)


@dataclass(frozen=True)
class Expectation:
    """What theory and earlier measurements say of an arm on a task, beside Clifford: `worse`, `tie` or `better`."""

    arm: str
    outcome: str
    why: str


@dataclass(frozen=True)
class Task:
    """A supervised problem on multivectors.

    algebra : the components that inputs, hidden layers and target can populate (a set of grades closed under the product).
    inputs : input multivectors; `input_grades`, `target_grades` the grades that they and the target populate.
    samples : training samples; layers : product layers; channels : hidden multivectors of the Clifford arm.
    metric : "nmse" (squared error over the target's variance), "sign" (share of wrong signs) or "angle" (median, degrees).
    factor : an arm separates from Clifford when its error is at least so many times Clifford's.
    all_plus_fails : whether the all-plus table is a negative control here (the target needs orientation).
    null : whether there is no geometry to find.
    """

    name: str
    title: str
    algebra: Algebra
    inputs: int
    input_grades: tuple[int, ...]
    target_grades: tuple[int, ...]
    samples: int
    layers: int
    channels: int
    sample: Callable[[Draws], tuple[Tensor, Tensor]]
    metric: str = "nmse"
    factor: float = 10.0
    all_plus_fails: bool = True
    null: bool = False
    expected: tuple[Expectation, ...] = ()
    out_of_range: bool = False

    @cached_property
    def target_components(self) -> np.ndarray:
        """Places of the target's components in `algebra`, int64."""
        return np.flatnonzero(np.isin(self.algebra.grade, self.target_grades))

    @cached_property
    def input_components(self) -> np.ndarray:
        """Places of the components that an input populates."""
        return np.flatnonzero(np.isin(self.algebra.grade, self.input_grades))

    def draw(self, seed: int, split: str, count: int | None = None) -> tuple[Tensor, Tensor]:
        """Inputs (inputs, dim, N) and target (target components, N), fp32; `split` is train, test or, where there is one, beyond."""
        count = count or (self.samples if split == "train" else TEST_SAMPLES)
        if split == "beyond" and not self.out_of_range:
            raise UserError(f"task {self.name} has no test beyond the range of its training data")
        draws = Draws(generator("algebra", self.name, seed, split), count, seed, split == "beyond")
        x, y = self.sample(draws)
        full = self.algebra.full
        x, y = convert(full, self.algebra, x), convert(full, self.algebra, y)
        return x.permute(1, 2, 0).float().contiguous(), y[:, self.target_components].T.float().contiguous()

    def errors(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Error of predictions (..., components, N) against (components, N) by the task's metric, shape (...)."""
        if self.metric == "sign":
            return (torch.sign(predicted[..., 0, :]) != torch.sign(target[0])).double().mean(-1)
        if self.metric == "angle":
            cosine = torch.nn.functional.cosine_similarity(predicted, target.expand_as(predicted), dim=-2)
            return torch.rad2deg(torch.acos(cosine.clamp(-1, 1))).median(-1).values.double()
        return nmse(predicted, target)


def nmse(predicted: Tensor, target: Tensor) -> Tensor:
    """Squared error over the target's variance about its mean, (..., components, N) and (components, N) to (...)."""
    variance = (target - target.mean(-1, keepdim=True)).double().square().sum()
    return (predicted - target).double().square().sum((-2, -1)) / variance


# -- what is drawn ------------------------------------------------------------------------------------------------------


def place(algebra: Algebra, grade: int, values: Tensor) -> Tensor:
    """(..., components of a grade) as multivectors (..., dim)."""
    out = values.new_zeros(*values.shape[:-1], algebra.dim)
    out[..., algebra.slice(grade)] = values
    return out


def random_rotors(draws: Draws, algebra: Algebra, number: int) -> Tensor:
    """(count, number, dim) unit rotors exp(-B/2); |B| uniform below pi, or between pi and 2 pi beyond the range."""
    planes = algebra.n * (algebra.n - 1) // 2
    angle = torch.pi * (draws.uniform(number, 1) + draws.beyond)
    return convert(algebra.even, algebra, exp(algebra, -angle / 2 * draws.unit(number, planes)))


def _not_drawn(draws: Draws) -> tuple[Tensor, Tensor]:
    raise UserError("the fixed rotation's pairs are drawn by fixed_rotation.noisy_pairs")


def _composition(algebra: Algebra, reflections: bool = False) -> Callable[[Draws], tuple[Tensor, Tensor]]:
    def sample(draws: Draws) -> tuple[Tensor, Tensor]:
        x = random_rotors(draws, algebra, 3)
        if reflections:  # half of the versors are odd: a rotor times a unit vector
            odd = product(algebra, x, place(algebra, 1, draws.unit(3, algebra.n)))
            x = torch.where(draws.uniform(3, 1) < 0.5, odd, x)
        return x, product(algebra, product(algebra, x[:, 2], x[:, 1]), x[:, 0])

    return sample


def _intersection(draws: Draws) -> tuple[Tensor, Tensor]:
    cl3 = Algebra(3)
    x = place(cl3, 2, draws.unit(2, 3))
    return x, project(cl3, product(cl3, x[:, 0], x[:, 1]), 2)


def _orientation(draws: Draws) -> tuple[Tensor, Tensor]:
    cl3 = Algebra(3)
    x = place(cl3, 1, draws.normal(3, 3))
    return x, project(cl3, product(cl3, product(cl3, x[:, 0], x[:, 1]), x[:, 2]), 3)


def _analogy(draws: Draws) -> tuple[Tensor, Tensor]:
    cl3 = Algebra(3)
    x = place(cl3, 1, torch.cat((draws.unit(2, 3), draws.normal(1, 3)), 1))
    turn = product(cl3, x[:, 1], x[:, 0])  # 1 + b a turns a into b, up to its length
    turn[:, 0] += 1
    return x, project(cl3, product(cl3, product(cl3, turn, x[:, 2]), reverse(cl3, turn)), 1) / 4


def plane_points(draws: Draws) -> tuple[Tensor, Tensor]:
    """Six noisy points (count, 6, 3) in order around a circle in a random plane, and its oriented unit bivector (count, 3)."""
    axes = torch.linalg.qr(draws.normal(3, 3))[0]
    angle = 2 * torch.pi * (torch.arange(POINTS, dtype=torch.float64) / POINTS + draws.uniform(1))
    circle = torch.stack((angle.cos(), angle.sin(), torch.zeros_like(angle)), -1)
    points = torch.einsum("npa,nxa->npx", circle, axes) + POINT_NOISE * draws.normal(POINTS, 3)
    u, v = axes[..., 0], axes[..., 1]
    return points, wedge(u, v)


def wedge(u: Tensor, v: Tensor) -> Tensor:
    """Bivector u ^ v of vectors (..., 3) in the order e12, e13, e23."""
    i, j = torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2])
    return u[..., i] * v[..., j] - u[..., j] * v[..., i]


def _plane(draws: Draws) -> tuple[Tensor, Tensor]:
    cl3 = Algebra(3)
    points, bivector = plane_points(draws)
    return place(cl3, 1, points), place(cl3, 2, bivector)


def plane_floors(seed: int) -> dict[str, float]:
    """Median angle (degrees) on the test points of two estimators that know the geometry: the best-fitting plane by SVD, its
    orientation given, and the sum of the wedges of neighbouring points."""
    points, truth = plane_points(Draws(generator("algebra", "plane", seed, "test"), TEST_SAMPLES, seed))
    _, _, axes = torch.linalg.svd(points, full_matrices=False)
    fitted = wedge(axes[:, 0], axes[:, 1])
    fitted = fitted * torch.sign((fitted * truth).sum(-1, keepdim=True))
    summed = wedge(points, points.roll(-1, 1)).sum(1)
    angle = lambda b: torch.rad2deg(
        torch.acos(torch.nn.functional.cosine_similarity(b, truth, dim=-1).clamp(-1, 1))
    ).median()
    return {"svd, orientation given": float(angle(fitted)), "sum of wedges": float(angle(summed))}


def _null_teacher(draws: Draws) -> tuple[Tensor, Tensor]:
    teacher = generator("algebra", "null_teacher", draws.seed, "teacher")
    first, second = (torch.randn(*s, generator=teacher, dtype=torch.float64) for s in ((24, 32), (32, 8)))
    x = draws.normal(3, 8)
    return x, torch.tanh(x.flatten(1) @ first / 24**0.5) @ second / 32**0.5


def _null_product(draws: Draws) -> tuple[Tensor, Tensor]:
    x = draws.normal(2, 8)
    return x, x[:, 0] * x[:, 1]


_SHARED = (
    "the even subalgebra of Cl(0,3) is that of Cl(3) with the bivectors' signs turned, which a weight per grade absorbs"
)
_QUATERNION = "the even subalgebra of Cl(3) is the quaternions: the same model"
_GAUGE = "the same algebra under other names"
_SIGNS = "composition needs the table's own signs"
_PLUS = "without signs no order and no orientation"
_SCALAR = "a general network must find a polynomial of degree 3 from few samples"
_FEW = "few signs are used: a random table has them all right in part of the draws, so it shows some tables worse, some tied"

_EVEN3 = Algebra(3).even
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(  # fitted in closed form by `fixed_rotation`; figures are those of 16 pairs
            "fixed_rotation", "fixed rotation x -> R x ~R from 16 noisy pairs", Algebra(3), 1, (0, 1, 2, 3), (0, 1, 2, 3), 16, 1, 1,
            _not_drawn,
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
        Task(
            "rotors_spin3", "rotor composition R3 R2 R1 in Spin(3)", _EVEN3, 3, (0, 2), (0, 2), 512, 2, 10,
            _composition(Algebra(3)), out_of_range=True,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "worse", _SIGNS),
                Expectation("all_plus", "worse", _PLUS), Expectation("other_signature", "tie", _SHARED),
                Expectation("mixed_signature", "worse", "Spin(2,1) is another group"),
                Expectation("quaternion", "tie", _QUATERNION), Expectation("dense", "worse", _SCALAR),
            ),
        ),
        Task(
            "rotors_spin4", "rotor composition R3 R2 R1 in Spin(4)", Algebra(4).even, 3, (0, 2, 4), (0, 2, 4), 512, 2, 8,
            _composition(Algebra(4)), out_of_range=True,
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
        Task(
            "versors_pin3", "composition with reflections in Pin(3)", Algebra(3), 3, (0, 1, 2, 3), (0, 1, 2, 3), 512, 2, 7,
            _composition(Algebra(3), reflections=True), out_of_range=True,
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
        Task(
            "intersection", "meet of two planes <B1 B2>_2", _EVEN3, 2, (2,), (2,), 128, 2, 10, _intersection,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "mixed", _FEW),
                Expectation("all_plus", "worse", "the commutator of a commutative table vanishes"),
                Expectation("other_signature", "tie", _SHARED), Expectation("quaternion", "tie", _QUATERNION),
                Expectation("dense", "worse", _SCALAR),
            ),
        ),
        Task(
            "orientation", "orientation of three vectors, <abc>_3", Algebra(3), 3, (1,), (3,), 512, 2, 7, _orientation,
            metric="sign",
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "mixed", _FEW),
                Expectation("all_plus", "worse", "a symmetric function of the vectors' order: chance"),
                Expectation("other_signature", "tie", "the volume does not depend on the metric"),
                Expectation("mixed_signature", "tie", "the volume does not depend on the metric"),
                Expectation("dense", "worse", _SCALAR),
            ),
        ),
        Task(
            "analogy", "a is to b as c is to <(1+ba) c (1+ab)>_1 / 4", Algebra(3), 3, (1,), (1,), 1024, 3, 7, _analogy,
            all_plus_fails=False,
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
        Task(
            "plane", "oriented plane of six noisy points", Algebra(3), POINTS, (1,), (2,), 512, 2, 6, _plane,
            metric="angle", factor=1.5,
            expected=(
                Expectation("gauge", "tie", "the same algebra, its signs put on inputs and targets as well"),
                Expectation("shuffled", "tie", "a bivector coordinate needs one pair that anticommutes, or any pair of channels"),
                Expectation("all_plus", "worse", _PLUS), Expectation("other_signature", "tie", _SHARED),
                Expectation("dense", "tie", "noise of the points is most of the error (earlier: 8 against 6 degrees)"),
            ),
        ),
        Task(
            "null_teacher", "null: random tanh network", Algebra(3), 3, (0, 1, 2, 3), (0, 1, 2, 3), 1024, 2, 7,
            _null_teacher, factor=1.1, all_plus_fails=False, null=True,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "tie", "there is no geometry to find"),
                Expectation("all_plus", "tie", "there is no geometry to find"),
                Expectation("dense", "better", "the teacher is a network of its kind"),
            ),
        ),
        Task(
            "null_product", "null: coefficientwise product", Algebra(3), 2, (0, 1, 2, 3), (0, 1, 2, 3), 512, 2, 7,
            _null_product, factor=1.1, all_plus_fails=False, null=True,
            expected=(
                Expectation("gauge", "tie", _GAUGE), Expectation("shuffled", "tie", "no table holds it"),
                Expectation("all_plus", "tie", "no table holds it"),
                Expectation("dense", "better", "it may treat components one by one"),
            ),
        ),
    )
}  # fmt: skip
