"""Truncation at work: the networks of phase 1 on vectors in n = 4, 5, 6 with grades kept up to k ([Parslow2026], section 4.1).

A job is a task, a dimension and a k: the truncated Clifford table beside random signs, its gauge, the all-plus table and, where
grades up to 2 are kept, tables that keep some of the planes alone; all of about the same number of parameters. Data depend on task,
dimension and seed, and not on k. What products lose is measured beside the errors, without any training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomix.algebra import Algebra, SignedTriplets
from geomix.algebra.operations import bilinear, convert, product, project, reverse
from geomix.algebra.rotors import exp
from geomix.files import write_json
from geomix.seeds import derive_seed
from geomix.settings.algebra_truncation import DECLARED, SPARSE, Cell
from geomix.studies.algebra.arms import AlgebraStack, DenseStack, Stack, widths_near
from geomix.studies.algebra.representation import fit, judge, measure_step, stacked_data
from geomix.studies.algebra.tables import Table, associator_norm, tables_of
from geomix.studies.algebra.tasks import Draws, Task, place
from geomix.training.progress import say
from geomix.training.record import job_record
from geomix.training.seeding import generator

SAMPLES = 512
PROBES = 2048


def run_cell(settings: Mapping[str, Any], out: str | Path) -> dict[str, Any]:
    """Run one job on one CPU thread and write what was found and what it cost to the JSON file `out`.

    settings : those of `settings.algebra_truncation.cell_settings`
    """
    torch.set_num_threads(1)
    begun, used = time.perf_counter(), time.process_time()
    cell = Cell(settings["task"], settings["n"], settings["kept"])
    task = task_of(cell)
    train, test = (stacked_data(task, settings["seeds"], split) for split in ("train", "test"))
    arms = {}
    for arm in cell.arms:
        stack = build(cell, arm, settings["seeds"], settings)
        fit(stack, *train, steps=settings["steps"], rate=settings["learning_rate"])
        arms[arm] = {"errors": judge(stack, *test).tolist(), **_costs(cell, arm, stack, settings, train)}
    record = job_record(begun, used, torch.device("cpu"))
    found = {"settings": dict(settings), "arms": arms, "loss": losses(task.algebra), "record": record}
    write_json(out, found)
    median = np.median(arms["clifford"]["errors"])
    say(f"{cell.name}: median error {median:.3g} of the Clifford table, {record['cpu_seconds']:.0f} CPU-s")
    return found


def _costs(cell: Cell, arm: str, stack: Stack, settings: Mapping[str, Any], train: Sequence[Tensor]) -> dict[str, Any]:
    """Retained components, parameters, multiply-adds and step time of one model; the associator of each table."""
    algebra = stack.task.algebra
    dropped = algebra.dim - _kept(algebra, arm).sum() if arm in SPARSE else 0
    sizes = [stack.task.inputs, *stack.widths]
    saved = 3 * dropped * sum(a * b for a, b in zip(sizes, sizes[1:], strict=False))
    single = build(cell, arm, [0], {**settings, "tables": 1, "gauge_tables": 1})
    tables = stack.products if isinstance(stack, AlgebraStack) else []
    return {
        "components": int(algebra.dim - dropped) if tables else None,
        "parameters": stack.parameter_count,
        "flops": int(6 * (stack.macs - saved)),
        "widths": list(stack.widths),
        "associators": [associator_norm(table) for table in tables] if algebra.dim <= 32 else [],
        **measure_step(single, *(x[:1] for x in train), rate=settings["learning_rate"], repeats=5),
    }


def build(cell: Cell, arm: str, seeds: Sequence[int], settings: Mapping[str, Any]) -> Stack:
    """The stack of an arm, its hidden widths chosen to the parameters of `settings`; all tables have the Clifford arm's."""
    task, widths = task_of(cell), _widths(cell, arm == "dense", settings["parameters"])
    if arm == "dense":
        return DenseStack(task, seeds, widths)
    count = settings["gauge_tables"] if arm == "gauge" else settings["tables"]
    tables = [sparse_table(task.algebra, arm)] if arm in SPARSE else tables_of(arm, task.algebra, count)
    return AlgebraStack(task, seeds, tables, task.algebra.grade, widths)


@lru_cache(maxsize=16)
def _widths(cell: Cell, dense: bool, budget: int) -> tuple[int, ...]:
    task = task_of(cell)
    table = tables_of("clifford", task.algebra)
    make = lambda w: DenseStack(task, [0], w) if dense else AlgebraStack(task, [0], table, task.algebra.grade, w)
    return widths_near(lambda widths: make(widths).parameter_count, budget, task.layers)


def _kept(algebra: Algebra, arm: str) -> np.ndarray:
    """(dim,) which components products keep under a sparse arm: of the bivectors a share, the smaller one within the larger."""
    planes = np.flatnonzero(algebra.grade == 2)
    order = np.random.default_rng(derive_seed("algebra", "planes", algebra.n) % 2**32).permutation(planes)
    kept = np.ones(algebra.dim, bool)
    kept[order[round(SPARSE[arm] * len(planes)) :]] = False
    return kept


def sparse_table(algebra: Algebra, arm: str) -> Table:
    """The table of `algebra` without the products that read or make a bivector which the arm drops."""
    table, kept = algebra.product(), _kept(algebra, arm)
    inside = kept[table.i] & kept[table.j] & kept[table.k]
    parts = (part[inside] for part in (table.i, table.j, table.k, table.sign))
    plain = np.ones(algebra.dim, np.int8)
    return Table(arm, SignedTriplets(*parts, table.out, table.out, table.out), plain)


def losses(algebra: Algebra, table: SignedTriplets | None = None) -> dict[str, float]:
    """What products of three random elements lose when each product is projected back onto the retained grades.

    Elements have standard normal coefficients. `left` and `right`: squared error of P((P(ab))c) and of P(a(P(bc))) beside the product
    without inner projection, over the latter's size; `associator`: squared difference of the two orders over the same. `table` is one of
    the full algebra, Clifford's by default.
    """
    full = algebra.full
    table = full.product() if table is None else table
    draw = generator("algebra", "truncation", full.n, len(algebra.grades))
    a, b, c = convert(algebra, full, torch.randn(3, PROBES, algebra.dim, generator=draw, dtype=torch.float64))
    cut = lambda m: project(full, m, *algebra.grades)
    times = lambda x, y: bilinear(table, x, y)
    ab, bc = times(a, b), times(b, c)
    exact = {"left": cut(times(ab, c)), "right": cut(times(a, bc))}
    ours = {"left": cut(times(cut(ab), c)), "right": cut(times(a, cut(bc)))}
    size = lambda m: float(m.square().sum(-1).mean())
    found = {order: size(ours[order] - exact[order]) / size(exact[order]) for order in exact}
    return found | {"associator": size(ours["left"] - ours["right"]) / size(exact["left"])}


# -- tasks --------------------------------------------------------------------------------------------------------------


def _turn(algebra: Algebra) -> Callable[[Draws], tuple[Tensor, Tensor]]:
    def sample(draws: Draws) -> tuple[Tensor, Tensor]:
        n = algebra.n
        x = place(algebra, 1, torch.cat((draws.unit(2, n), draws.normal(1, n)), 1))
        turn = product(algebra, x[:, 1], x[:, 0])
        turn[:, 0] += 1
        turned = product(algebra, product(algebra, turn, x[:, 2]), reverse(algebra, turn))
        return x, project(algebra, turned, 1) / 4

    return sample


def _chain(algebra: Algebra) -> Callable[[Draws], tuple[Tensor, Tensor]]:
    def sample(draws: Draws) -> tuple[Tensor, Tensor]:
        x = place(algebra, 1, draws.unit(5, algebra.n))
        y = x[:, 0]
        for i in range(1, 5):
            y = product(algebra, y, x[:, i])
        return x, project(algebra, y, 1)

    return sample


def _rotors(algebra: Algebra) -> Callable[[Draws], tuple[Tensor, Tensor]]:
    def sample(draws: Draws) -> tuple[Tensor, Tensor]:
        u, v = place(algebra, 1, draws.unit(3, algebra.n)), place(algebra, 1, draws.unit(3, algebra.n))
        plane = project(algebra, product(algebra, u, v), 2)[..., algebra.slice(2)]
        angle = torch.pi * draws.uniform(3, 1)
        half = -angle / 2 * torch.nn.functional.normalize(plane, dim=-1)
        x = convert(algebra.even, algebra, exp(algebra, half))
        y = product(algebra, product(algebra, x[:, 2], x[:, 1]), x[:, 0])
        return x, project(algebra, y, 0, 2)

    return sample


def _null(algebra: Algebra) -> Callable[[Draws], tuple[Tensor, Tensor]]:
    def sample(draws: Draws) -> tuple[Tensor, Tensor]:
        n = algebra.n
        teacher = generator("algebra", "truncation_null", n, draws.seed)
        first, second = (torch.randn(*s, generator=teacher, dtype=torch.float64) for s in ((3 * n, 32), (32, n)))
        x = draws.normal(3, n)
        return place(algebra, 1, x), place(
            algebra, 1, torch.tanh(x.flatten(1) @ first / (3 * n) ** 0.5) @ second / 32**0.5
        )

    return sample


_SAMPLES = {
    # what is drawn, inputs, grades of inputs and target, layers
    "turn": (_turn, 3, (1,), (1,), 3),
    "chain": (_chain, 5, (1,), (1,), 3),
    "rotors": (_rotors, 3, (0, 2), (0, 2), 2),
    "null": (_null, 3, (1,), (1,), 2),
}


def task_of(cell: Cell) -> Task:
    """The task of a job, on the retained components; its data do not depend on the truncation."""
    make, inputs, given, wanted, layers = _SAMPLES[cell.task]
    declared = DECLARED[cell.task]
    task = Task(
        name=f"truncation_{cell.task}_{cell.n}",
        title=declared.title,
        samples=SAMPLES,
        factor=declared.factor,
        all_plus_fails=declared.all_plus_fails,
        null=declared.null,
        algebra=Algebra(cell.n),
        inputs=inputs,
        input_grades=given,
        target_grades=wanted,
        layers=layers,
        channels=1,
        sample=make(Algebra(cell.n)),
    )
    return replace(task, algebra=Algebra.truncated(cell.n, cell.top))
