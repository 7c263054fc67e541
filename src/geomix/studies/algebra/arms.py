"""Phase 1's arms: stacks of models that are trained at once, one for each table and seed.

A stack has T tables and R seeds; every parameter begins with these two axes, data with the seeds' axis alone. A seed's initial
weights are the same for all tables, so that two tables differ in nothing but their signs. Components come before channels in
memory, so that a linear map that is tied per grade is one matrix product a component and the geometric product one compiled
kernel a table.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from geomix.algebra import Algebra
from geomix.errors import UserError
from geomix.models.layers.linear import stacked_linear
from geomix.models.layers.product import dense_product, stacked_product
from geomix.studies.algebra.tables import Table, dual_pairs, tables_of
from geomix.studies.algebra.tasks import Task
from geomix.training.seeding import generator

TOLERANCE = 0.05  # of a budget


class Stack:
    """Models with parameters (T, R, ...): `parameters`, `forward`, what they count and what they cost.

    forward : (R, inputs, dim, N) to (T, R, target components, N).
    parameter_count : trainable numbers of one model that can influence the output.
    macs : multiply-adds of one model's forward pass a sample, as executed.
    """

    tables = 1
    parameter_count: int
    macs: int
    parameters: dict[str, Tensor]

    def __init__(self, task: Task, seeds: Sequence[int]) -> None:
        self.task, self.seeds = task, list(seeds)
        self.parameters = {}

    def add(self, name: str, *shape: int, std: float) -> None:
        """A parameter (T, R, *shape), the same for all tables of a seed."""
        draws = [
            torch.randn(*shape, generator=generator("algebra", self.task.name, seed, "weights", name)) * std
            for seed in self.seeds
        ]
        value = torch.stack(draws).expand(self.tables, len(self.seeds), *shape).contiguous()
        self.parameters[name] = value.requires_grad_()

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def single(self) -> Stack:
        """The model of the first table and seed in float64, by operations that functional transforms can differentiate."""
        other = copy.copy(self)
        other.parameters = {name: p[:1, :1].detach().double() for name, p in self.parameters.items()}
        return other


class AlgebraStack(Stack):
    """Product layers y = (U x)(V x) + W x and a last linear map, all tied per grade, with scalar biases.

    Arguments: `tables`, on the components of `grade`'s algebra; `grade` (dim,), the components that share a weight; `widths`, the
    hidden multivectors of each layer. `regroup` (see `Regroup`) turns the task's components into those of the table.
    """

    def __init__(
        self,
        task: Task,
        seeds: Sequence[int],
        tables: Sequence[Table],
        grade: np.ndarray,
        widths: Sequence[int],
        regroup: Regroup | None = None,
    ) -> None:
        super().__init__(task, seeds)
        self.multiply = stacked_product
        self.tables, self.products = len(tables), [table.triplets for table in tables]
        self.names = [table.name for table in tables]
        self.signs = torch.tensor(np.stack([table.signs for table in tables]), dtype=torch.float32)
        self.regroup, self.widths = regroup, tuple(widths)
        self.dim = self.products[0].out
        groups = np.unique(grade, return_inverse=True)[1]
        self.grade = torch.tensor(groups)
        count = int(groups.max()) + 1
        if regroup is None:
            channels, outputs = task.inputs, 1
            alive = np.isin(np.arange(self.dim), task.input_components)[None].repeat(channels, 0)
            wanted = np.isin(np.arange(self.dim), task.target_components)[None]
        else:
            channels, outputs = regroup.channels, regroup.outputs
            alive, wanted = regroup.alive, regroup.wanted
        self.out_places = torch.tensor(np.flatnonzero(wanted.any(0)))
        self.outputs = outputs
        width = channels
        for layer, hidden in enumerate(widths):
            for name in "uvw":
                # U x and V x such that their product has the variance of W x
                std = width**-0.5 * (1.0 if name == "w" else self.dim**-0.25)
                self.add(f"{name}{layer}", count, hidden, width, std=std)
                self.add(f"bias_{name}{layer}", hidden, 1, std=0.0)
            width = hidden
        self.add("out", count, outputs, width, std=width**-0.5)
        self.parameter_count = self._live(alive, wanted, groups)
        sizes = [channels, *widths]
        terms = len(self.products[0])
        self.macs = sum(3 * a * b * self.dim + b * terms for a, b in zip(sizes, sizes[1:], strict=False))
        self.macs += width * outputs * len(self.out_places)

    def _live(self, alive: np.ndarray, wanted: np.ndarray, groups: np.ndarray) -> int:
        """Parameters that can influence the output, by following which components can be non-zero and which matter.

        alive (channels, dim), wanted (outputs, dim) : components that inputs populate and that the target reads.
        """
        table = self.products[0]
        scalar = np.arange(self.dim) == 0
        inputs = [alive]  # of each layer: one row a channel, or one row for all
        for width in self.widths:
            filled = inputs[-1].any(0) | scalar
            made = filled.copy()
            made[table.k[filled[table.i] & filled[table.j]]] = True
            inputs.append(made[None].repeat(width, 0))
        # weights from channels with components `before` (in, dim) to channels that need `mask` (dim,)
        grades = lambda mask, before: sum(len(np.unique(groups[mask & row])) for row in before)
        total = sum(grades(row, inputs[-1]) for row in wanted)
        need = inputs[-1].any(0) & wanted.any(0)
        for layer in reversed(range(len(self.widths))):
            before, width = inputs[layer], self.widths[layer]
            filled = before.any(0) | scalar
            used = filled[table.i] & filled[table.j] & need[table.k]
            factors = [np.isin(np.arange(self.dim), places[used]) for places in (table.i, table.j)]
            needed = np.zeros(self.dim, bool)
            for mask in (*factors, need):  # U, V, W
                total += width * (grades(mask, before) + int(mask[0]))
                needed |= mask & before.any(0)
            need = needed
        return int(total)

    def single(self) -> AlgebraStack:
        other = super().single()
        other.products, other.signs, other.multiply = self.products[:1], self.signs[:1].double(), dense_product
        return other

    def linear(self, name: str, x: Tensor) -> Tensor:
        """(T, dim, R, in, N) to (T, dim, R, out, N), with the bias added to the scalar component."""
        return stacked_linear(self.parameters[name], self.parameters[f"bias_{name}"], self.grade, x)

    def hidden(self, x: Tensor, change: Callable[[int, Tensor], Tensor] | None = None) -> list[Tensor]:
        """The input and each layer's output, (T, dim, R, channels, N); `change` may put another in the place of a layer's output."""
        if self.regroup is not None:
            x = self.regroup.inputs(x)
        x = x.permute(2, 0, 1, 3).unsqueeze(0) * self.signs.to(x)[:, :, None, None, None]
        found = [x.contiguous()]
        for layer in range(len(self.widths)):
            u, v, w = (self.linear(f"{name}{layer}", found[-1]) for name in "uvw")
            y = self.multiply(self.products, u, v) + w
            found.append(y if change is None else change(layer, y))
        return found

    def forward(self, x: Tensor, change: Callable[[int, Tensor], Tensor] | None = None) -> Tensor:
        last = self.hidden(x, change)[-1]
        places = self.out_places.to(x.device)
        weight = self.parameters["out"].index_select(2, self.grade[self.out_places].to(x.device)).transpose(1, 2)
        y = torch.matmul(weight, last.index_select(1, places))
        if self.regroup is not None:  # (T, places, R, outputs, N)
            return self.regroup.targets(y.permute(0, 2, 3, 1, 4))
        return y.squeeze(3).transpose(1, 2) * self.signs.to(y)[:, None, self.out_places, None]


@dataclass(frozen=True)
class Regroup:
    """The task's components, dealt out to channels of a smaller table (complex numbers, quaternions).

    source (channels, dim) : place of each component in the flattened input (inputs x task dim), -1 where there is none; `signs` the same
    shape. target (outputs, dim) : place in the task's target components, -1 where there is none; `target_signs`.
    """

    source: np.ndarray
    signs: np.ndarray
    target: np.ndarray
    target_signs: np.ndarray

    @property
    def channels(self) -> int:
        return len(self.source)

    @property
    def outputs(self) -> int:
        return len(self.target)

    @property
    def alive(self) -> np.ndarray:
        return self.source >= 0

    @property
    def wanted(self) -> np.ndarray:
        return self.target >= 0

    def inputs(self, x: Tensor) -> Tensor:
        """(R, inputs, task dim, N) to (R, channels, dim, N)."""
        flat = x.flatten(1, 2)
        padded = torch.cat((flat, torch.zeros_like(flat[:, :1])), 1)  # place -1 is a zero
        signs = torch.tensor(self.signs, dtype=x.dtype, device=x.device).unsqueeze(-1)
        return padded[:, torch.tensor(self.source, device=x.device)] * signs

    def targets(self, y: Tensor) -> Tensor:
        """(T, R, outputs, wanted components, N) to (T, R, target components, N)."""
        some = self.wanted.any(0)
        target, signs = self.target[:, some], self.target_signs[:, some]
        filled = np.argwhere(target >= 0)
        order = filled[np.argsort(target[target >= 0])]
        chosen = y[:, :, torch.tensor(order[:, 0]), torch.tensor(order[:, 1])]
        return chosen * torch.tensor(signs[order[:, 0], order[:, 1]], dtype=y.dtype, device=y.device).unsqueeze(-1)


def regroup(task: Task, kind: str) -> Regroup:
    """Complex: components in pairs, in order. Quaternion: M = q + I q' with the pseudoscalar I of the algebra's first dimensions
    central in it (Cl(3), and the even part of Cl(4)), so that q and q' are two quaternions over (1, e12, e13, e23)."""
    algebra = task.algebra
    dim = 2 if kind == "complex" else 4

    def arrays(groups: list[list[tuple[int | None, int]]]) -> tuple[np.ndarray, np.ndarray]:
        places, signs = np.full((len(groups), dim), -1), np.ones((len(groups), dim), np.int8)
        for row, group in enumerate(groups):
            for column, (p, s) in enumerate(group):
                if p is not None:
                    places[row, column], signs[row, column] = p, s
        return places, signs

    if kind == "complex":
        deal = lambda places, _: [[(p, 1) for p in places[i : i + 2]] for i in range(0, len(places), 2)]
        everything = [c * algebra.dim + int(p) for c in range(task.inputs) for p in task.input_components]
        source, signs = arrays(deal(everything, 0))
    else:
        quaternion, dual, sign = (values.astype(int).tolist() for values in dual_pairs(algebra))
        place = {int(a): int(b) for a, b in zip(*algebra.full.conversion(algebra), strict=True)}
        both = [[(place.get(q), 1) for q in quaternion], [(place.get(p), s) for p, s in zip(dual, sign, strict=True)]]

        def deal(places, offset):
            kept = [[(p + offset if p in set(places) else None, s) for p, s in group] for group in both]
            return [group for group in kept if any(p is not None for p, _ in group)]

        dealt = [group for c in range(task.inputs) for group in deal(task.input_components.tolist(), c * algebra.dim)]
        source, signs = arrays(dealt)
    where = {int(p): index for index, p in enumerate(task.target_components)}
    grouped = [[(None if p is None else where[p], s) for p, s in g] for g in deal(task.target_components.tolist(), 0)]
    target, target_signs = arrays(grouped)
    return Regroup(source, signs, target, target_signs)


class ScalarStack(Stack):
    """What scalar networks share: the populated components as one vector, and linear maps of stacks."""

    def __init__(self, task: Task, seeds: Sequence[int], widths: Sequence[int]) -> None:
        super().__init__(task, seeds)
        self.widths = tuple(widths)
        self.inputs = task.inputs * len(task.input_components)
        self.outputs = len(task.target_components)
        self.macs = self.padding = 0

    def layer(self, name: str, inputs: int, outputs: int, *, groups: int = 1, bias: bool = True) -> None:
        """A linear map of `groups` diagonal blocks; `inputs` are padded to a multiple of the groups."""
        size = -(-inputs // groups)
        self.add(name, groups, outputs // groups, size, std=size**-0.5)
        self.macs += groups * (outputs // groups) * size
        self.padding += (groups * size - inputs) * (outputs // groups)
        if bias:
            self.add(f"bias_{name}", outputs, 1, std=0.0)

    def apply(self, name: str, x: Tensor) -> Tensor:
        """(1, R, in, N) to (1, R, out, N)."""
        weight = self.parameters[name]
        groups, _, size = weight.shape[2:]
        if groups == 1:
            y = torch.matmul(weight[:, :, 0], x)
        else:
            x = F.pad(x, (0, 0, 0, groups * size - x.shape[2]))
            y = torch.matmul(weight, x.unflatten(2, (groups, size))).flatten(2, 3)
        bias = self.parameters.get(f"bias_{name}")
        return y if bias is None else y + bias

    def flat(self, x: Tensor) -> Tensor:
        """(R, inputs, dim, N) to (1, R, populated components, N)."""
        return x.index_select(2, torch.tensor(self.task.input_components, device=x.device)).flatten(1, 2).unsqueeze(0)

    def finish(self) -> None:
        """Count the parameters, but for those that meet the zeros of a padding."""
        self.parameter_count = sum(p[0, 0].numel() for p in self.parameters.values()) - self.padding


class DenseStack(ScalarStack):
    """Multilayer perceptron with SiLU; with `groups` > 1 its inner maps are block-diagonal, channels shuffled between them."""

    def __init__(self, task: Task, seeds: Sequence[int], widths: Sequence[int], groups: int = 1) -> None:
        super().__init__(task, seeds, widths)
        self.groups = groups
        sizes = [self.inputs, *widths]
        for index, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False)):
            self.layer(f"layer{index}", a, b, groups=groups)
        self.layer("out", sizes[-1], self.outputs)
        self.finish()

    def forward(self, x: Tensor) -> Tensor:
        x = self.flat(x)
        for index in range(len(self.widths)):
            x = F.silu(self.apply(f"layer{index}", x))
            if self.groups > 1:
                x = x.unflatten(2, (self.groups, -1)).transpose(2, 3).flatten(2, 3)
        return self.apply("out", x)


class LowRankStack(ScalarStack):
    """Layers y = P ((U x) * (V x)) + W x of plain vectors: a bilinear form of free low-rank factors in place of a table."""

    def __init__(self, task: Task, seeds: Sequence[int], widths: Sequence[int]) -> None:
        super().__init__(task, seeds, widths)
        sizes = [self.inputs, *widths]
        for index, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False)):
            self.layer(f"u{index}", a, b)
            self.layer(f"v{index}", a, b)
            self.layer(f"p{index}", b, b, bias=False)
            self.layer(f"w{index}", a, b)
            self.macs += b
        self.layer("out", sizes[-1], self.outputs)
        self.finish()

    def forward(self, x: Tensor) -> Tensor:
        x = self.flat(x)
        for i in range(len(self.widths)):
            u, v, w = (self.apply(f"{name}{i}", x) for name in "uvw")
            x = self.apply(f"p{i}", u * v) + w
        return self.apply("out", x)


def build(task: Task, arm: str, seeds: Sequence[int], tables: int = 1) -> Stack:
    """The stack of an arm on a task, sized to the Clifford arm's parameters (wide_dense: to its FLOPs), within 5 % where widths allow.

    Raises UserError for an unknown arm.
    """
    if arm in ("clifford", "shuffled", "gauge", "all_plus", "other_signature", "mixed_signature"):
        grade, widths = task.algebra.grade, [task.channels] * task.layers
        return AlgebraStack(task, seeds, tables_of(arm, task.algebra, tables), grade, widths)
    make = _maker(task, arm, seeds)
    return make(_widths(task.name, arm))


def _maker(task: Task, arm: str, seeds: Sequence[int]) -> Callable[[Sequence[int]], Stack]:
    if arm in ("complex", "quaternion"):
        algebra = Algebra(0, 1) if arm == "complex" else Algebra(3).even
        table = Table(arm, algebra.product(), np.ones(algebra.dim, np.int8))
        grouped = regroup(task, arm)
        return lambda widths: AlgebraStack(task, seeds, [table], algebra.grade, widths, grouped)
    if arm in ("dense", "wide_dense"):
        return lambda widths: DenseStack(task, seeds, widths)
    if arm == "grouped":
        return lambda widths: DenseStack(task, seeds, widths, groups=4)
    if arm == "low_rank":
        return lambda widths: LowRankStack(task, seeds, widths)
    raise UserError(f"arm {arm!r} of the algebra study is not known")


@lru_cache(maxsize=64)
def _widths(name: str, arm: str) -> tuple[int, ...]:
    """Hidden widths nearest to the Clifford arm's budget, then nearest to each other."""
    from geomix.studies.algebra.tasks import TASKS

    task = TASKS[name]
    reference = build(task, "clifford", [0])
    held = "macs" if arm == "wide_dense" else "parameter_count"
    budget = getattr(reference, held)
    make = _maker(task, arm, [0])
    return widths_near(lambda widths: getattr(make(widths), held), budget, task.layers, 4 if arm == "grouped" else 1)


def widths_near(count: Callable[[Sequence[int]], int], budget: int, layers: int, step: int = 1) -> tuple[int, ...]:
    """Hidden widths, multiples of `step`, whose `count` is nearest to a budget, then nearest to each other."""
    square = step
    while count([square] * layers) < budget:
        square += step
    candidates: Iterable[tuple[int, ...]] = (
        (*[first] * (layers - 1), last)
        for first in range(max(step, square - 4 * step), square + 3 * step, step)
        for last in range(max(step, square - 4 * step), square + 3 * step, step)
    )
    miss = lambda widths: abs(math.log(count(widths) / budget))
    close = [(round(miss(w), 2), abs(w[0] - w[-1]), w) for w in candidates]
    inside = [c for c in close if c[0] <= 0.8 * TOLERANCE]
    return min(inside, key=lambda c: (c[1], c[0]))[2] if inside else min(close)[2]
