"""Phase 1's tasks: small problems whose geometry is known, and two nulls that have none.

Definitions after the k-blade article, section 7, with sizes that were tried out. Each draw depends on (task, seed, split) alone, so
that all arms and tables see the same data. What each task is expected to show was written down with it, before the study ran.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomix.algebra import Algebra
from geomix.algebra.operations import convert, product, project, reverse
from geomix.algebra.rotors import exp
from geomix.errors import UserError
from geomix.settings.algebra_tasks import DECLARED, Declared
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


@dataclass(frozen=True, kw_only=True)
class Task(Declared):
    """A supervised problem on multivectors, as it was declared, and its data.

    algebra : the components that inputs, hidden layers and target can populate (a set of grades closed under the product).
    inputs : input multivectors; `input_grades`, `target_grades` the grades that they and the target populate.
    layers : product layers; channels : hidden multivectors of the Clifford arm.
    """

    algebra: Algebra
    inputs: int
    input_grades: tuple[int, ...]
    target_grades: tuple[int, ...]
    layers: int
    channels: int
    sample: Callable[[Draws], tuple[Tensor, Tensor]]
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


def _task(name: str, *data: Any, out_of_range: bool = False) -> Task:
    names = ("algebra", "inputs", "input_grades", "target_grades", "layers", "channels", "sample")
    given = dict(zip(names, data, strict=True))
    return Task(**vars(DECLARED[name]), **given, out_of_range=out_of_range)


_CL3, _ALL = Algebra(3), (0, 1, 2, 3)
_TASKS = (
    # fitted in closed form by `fixed_rotation`; figures are those of 16 pairs
    _task("fixed_rotation", _CL3, 1, _ALL, _ALL, 1, 1, _not_drawn),
    _task("rotors_spin3", _CL3.even, 3, (0, 2), (0, 2), 2, 10, _composition(_CL3), out_of_range=True),
    _task("rotors_spin4", Algebra(4).even, 3, (0, 2, 4), (0, 2, 4), 2, 8, _composition(Algebra(4)), out_of_range=True),
    _task("versors_pin3", _CL3, 3, _ALL, _ALL, 2, 7, _composition(_CL3, reflections=True), out_of_range=True),
    _task("intersection", _CL3.even, 2, (2,), (2,), 2, 10, _intersection),
    _task("orientation", _CL3, 3, (1,), (3,), 2, 7, _orientation),
    _task("analogy", _CL3, 3, (1,), (1,), 3, 7, _analogy),
    _task("plane", _CL3, POINTS, (1,), (2,), 2, 6, _plane),
    _task("null_teacher", _CL3, 3, _ALL, _ALL, 2, 7, _null_teacher),
    _task("null_product", _CL3, 2, _ALL, _ALL, 2, 7, _null_product),
)  # fmt: skip
TASKS: dict[str, Task] = {task.name: task for task in _TASKS}
