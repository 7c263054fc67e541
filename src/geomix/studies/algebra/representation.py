"""Phase 1 at work: one job is a task and an arm; all its tables and seeds are trained in one stack.

Full-batch Adam with a cosine to zero, the same for every arm. A job writes what was found and what it cost: errors of each table and
seed, parameters, FLOPs, ranks, step time, peak and activation memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geomix.algebra.structure_constants import span_rank
from geomix.errors import UserError
from geomix.files import write_json
from geomix.studies.algebra.arms import AlgebraStack, Stack, build
from geomix.studies.algebra.jobs import cpu_seconds, kept_bytes
from geomix.studies.algebra.tables import anticommuting, associator_norm
from geomix.studies.algebra.tasks import TASKS, Task, nmse, plane_floors
from geomix.tensors import write_tensors
from geomix.training.progress import say
from geomix.training.record import job_record

CURVE_POINTS = 50
CLIP = 1.0  # gradient norm of each model of a stack


def run_job(settings: Mapping[str, Any], out: str | Path, *, weights: str | Path | None = None) -> dict[str, Any]:
    """Run one job of phase 1 on one CPU thread and write its record to the JSON file `out`.

    `settings` are those of `settings.job_settings`. With `weights`, the trained parameters go to that safetensors file, (T, R, ...)
    each, for phase 4.
    """
    torch.set_num_threads(1)  # small products: threads only cost
    begun, used = time.perf_counter(), time.process_time()
    if settings["task"] == "fixed_rotation":
        from geomix.studies.algebra.fixed_rotation import fit_arm

        found = fit_arm(settings)
    else:
        found, stack = train_arm(settings)
        if weights is not None:
            save_weights(stack, weights)
    record = job_record(begun, used, torch.device("cpu"))
    result = {"settings": dict(settings), **found, "record": record}
    write_json(out, result)
    median = torch.tensor(found["errors"]).median().item()
    say(f"{settings['task']}/{settings['arm']}: median error {median:.3g}, {record['cpu_seconds']:.0f} CPU-s")
    return result


def train_arm(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Stack]:
    """Train the stack of a job; what was found, and the trained stack."""
    task = TASKS[settings["task"]]
    stack = build(task, settings["arm"], settings["seeds"], settings.get("tables", 1))
    train, test = (stacked_data(task, settings["seeds"], split) for split in ("train", "test"))
    curve = fit(stack, *train, steps=settings["steps"], rate=settings["learning_rate"])
    errors = judge(stack, *test)
    found: dict[str, Any] = {
        "errors": errors.tolist(),
        "nmse": judge(stack, *test, metric="nmse").tolist() if task.metric != "nmse" else errors.tolist(),
        "curve": curve,
        **describe(stack),
        **measure_step(build(task, settings["arm"], [0]), *(x[:1] for x in train), rate=settings["learning_rate"]),
    }
    if task.out_of_range:
        found["beyond"] = judge(stack, *stacked_data(task, settings["seeds"], "beyond")).tolist()
    if task.name == "plane" and settings["arm"] == "clifford":
        found["floors"] = [plane_floors(seed) for seed in settings["seeds"]]
    return found, stack


def stacked_data(task: Task, seeds: list[int], split: str) -> tuple[Tensor, Tensor]:
    """Inputs (R, inputs, dim, N) and targets (R, components, N) of a split, a seed each."""
    x, y = zip(*(task.draw(seed, split) for seed in seeds), strict=True)
    return torch.stack(x), torch.stack(y)


def loss_of(stack: Stack, x: Tensor, y: Tensor) -> Tensor:
    """(T, R) squared error over the target's variance."""
    variance = (y - y.mean(-1, keepdim=True)).square().sum((-2, -1))
    return (stack.forward(x) - y).square().sum((-2, -1)) / variance


def fit(stack: Stack, x: Tensor, y: Tensor, *, steps: int, rate: float) -> list[dict[str, Any]]:
    """Train in place; [{"step", "loss": (T, R)}] along the way. The models of a stack do not see each other: losses add up,
    Adam is element-wise and gradients are clipped model by model."""
    parameters = list(stack.parameters.values())
    optimizer = torch.optim.Adam(parameters, lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 + 0.5 * math.cos(math.pi * s / steps))
    curve = []
    for step in range(steps):
        loss = loss_of(stack, x, y)
        if step % max(1, steps // CURVE_POINTS) == 0:
            curve.append({"step": step, "loss": _finite(loss.detach())})
        optimizer.zero_grad(set_to_none=True)
        loss.sum().backward()
        clip_each(parameters)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        curve.append({"step": steps, "loss": _finite(loss_of(stack, x, y))})
    return curve


@torch.no_grad()
def clip_each(parameters: list[Tensor], limit: float = CLIP) -> None:
    """Scale the gradients of each model (the first two axes) to a norm of at most `limit`; those that are not finite to 0."""
    square = sum(p.grad.square().flatten(2).sum(2) for p in parameters)
    factor = torch.nan_to_num((limit / square.sqrt()).clamp(max=1.0), nan=0.0)
    for p in parameters:
        p.grad.nan_to_num_(0.0, 0.0, 0.0).mul_(factor.view(*factor.shape, *[1] * (p.dim() - 2)))


@torch.no_grad()
def judge(stack: Stack, x: Tensor, y: Tensor, metric: str | None = None) -> Tensor:
    """(T, R) errors by the task's metric (or normalised squared error); one that is not finite counts as 1e6."""
    predicted = stack.forward(x)
    measure = nmse if metric == "nmse" else stack.task.errors
    rows = [measure(predicted[:, seed], y[seed]) for seed in range(len(y))]
    return torch.nan_to_num(torch.stack(rows, 1), nan=1e6, posinf=1e6)


def describe(stack: Stack) -> dict[str, Any]:
    """What is known of an arm before it is trained: parameters, FLOPs, widths, tying, ranks and each table's signs."""
    found: dict[str, Any] = {
        "parameters": stack.parameter_count,
        # two per multiply-add, forward and twice that backward
        "flops": 6 * stack.macs,
        "widths": list(stack.widths),
        "tangent_rank": tangent_rank(stack),
    }
    if not isinstance(stack, AlgebraStack):
        return {**found, "tying": "none: every component has weights of its own"}
    algebra = stack.task.algebra if stack.regroup is None else None
    found["tying"] = f"per grade: {int(stack.grade.max()) + 1} weights for {stack.dim} components"
    found["tables"] = [
        {
            "name": name,
            "span": span_rank(table),
            "of": stack.dim**2,
            "associator": associator_norm(table),
            **(
                {f"anticommuting_grade{g}": anticommuting(table, algebra, g) for g in (1, 2)}
                if algebra is not None
                else {}
            ),
        }
        for name, table in zip(stack.names, stack.products, strict=True)
    ]
    return found


def tangent_rank(stack: Stack, tolerance: float = 1e-6) -> int:
    """Rank of the derivative of a model's outputs by its parameters, of the first table: how many directions it can move in,
    however many numbers it has. In float64, at random parameters, on as many random inputs as are needed."""
    task, single = stack.task, stack.single()
    samples = math.ceil(1.2 * stack.parameter_count / len(task.target_components)) + 4
    x = task.draw(0, "train", samples)[0].double().movedim(-1, 0)
    shapes = {name: p.shape for name, p in single.parameters.items()}
    sizes = [p.numel() for p in single.parameters.values()]
    point = torch.randn(sum(sizes), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.4

    def outputs(flat: Tensor, sample: Tensor) -> Tensor:
        parts = zip(shapes.items(), flat.split(sizes), strict=True)
        single.parameters = {name: part.view(shape) for (name, shape), part in parts}
        return single.forward(sample[None, ..., None]).flatten()

    jacobian = torch.func.vmap(torch.func.jacrev(outputs), in_dims=(None, 0), chunk_size=64)(point, x).flatten(0, 1)
    values = torch.linalg.eigvalsh(jacobian.T @ jacobian)
    return int((values > tolerance**2 * values[-1]).sum())


def measure_step(stack: Stack, x: Tensor, y: Tensor, *, rate: float, repeats: int = 15) -> dict[str, float]:
    """Cost of one model (one table, one seed) at the task's batch: CPU seconds of a training step, and the bytes that its forward
    pass keeps for the backward pass (parameters and data not counted)."""
    kept = kept_bytes(lambda: loss_of(stack, x, y), (*stack.parameters.values(), x, y))
    seconds = cpu_seconds(lambda: fit(stack, x, y, steps=repeats, rate=rate)) / repeats
    return {"step_seconds": seconds, "activation_bytes": kept, "batch": x.shape[-1]}


def save_weights(stack: Stack, path: str | Path) -> None:
    """The parameters of a stack as safetensors."""
    write_tensors(path, stack.parameters)


def load_stack(task: str, arm: str, seeds: list[int], tables: int, weights: str | Path) -> Stack:
    """The trained stack of a job, from its weights."""
    from safetensors.torch import load_file

    stack = build(TASKS[task], arm, seeds, tables)
    for name, value in load_file(weights).items():
        if stack.parameters[name].shape != value.shape:
            raise UserError(
                f"{weights}: {name} does not fit the arm {arm} of {task}: remove the file and run its job again"
            )
        stack.parameters[name] = value
    return stack


def _finite(values: Tensor) -> list[list[float]]:
    return torch.nan_to_num(values, nan=1e6, posinf=1e6).tolist()
