"""The three nonlinearities of [Parslow2026], section 4.4, compared once: on tasks of phase 1, between grade-tied maps A x B.

Networks have three hidden layers of maps with one term and no products of two activations, so that the nonlinearity alone makes them
more than a linear map; each also under random signs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geomix.algebra import Algebra, SignedTriplets
from geomix.files import write_json
from geomix.models.layers.activations import ComponentActivation, GradeGate, NormActivation
from geomix.models.layers.linear import MultivectorLinear
from geomix.seeds import derive_seed
from geomix.settings.algebra_layers import NONLINEAR_TASKS, TABLES
from geomix.studies.algebra.jobs import cpu_seconds
from geomix.studies.algebra.tasks import TASKS, Task
from geomix.tensors import drawn_apart
from geomix.training.progress import say
from geomix.training.record import job_record

CHANNELS, LAYERS = 12, 3
MAKE = {
    "norm": NormActivation,
    "component": lambda algebra, channels: ComponentActivation(),
    "gate": GradeGate,
    "none": lambda algebra, channels: nn.Identity(),
}


def network(task: Task, activation: str, table: SignedTriplets) -> nn.Sequential:
    """(N, inputs, 8) to (N, 1, 8): hidden layers of grade-tied maps with a nonlinearity each, and a last map."""
    algebra, widths = Algebra(3), [task.inputs, *[CHANNELS] * LAYERS]
    layers: list[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        layers += [MultivectorLinear(algebra, inputs, outputs, table=table), MAKE[activation](algebra, outputs)]
    return nn.Sequential(*layers, MultivectorLinear(algebra, CHANNELS, 1, table=table))


def run_nonlinearities(settings: Mapping[str, Any], out: str | Path) -> dict[str, Any]:
    """All networks on all tasks, written to the JSON file `out`; `settings` : `algebra.layers` of the configuration."""
    torch.set_num_threads(1)
    begun, used = time.perf_counter(), time.process_time()
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for name in NONLINEAR_TASKS:
        tasks[name] = {
            activation: {table: _arm(TASKS[name], activation, table, settings) for table in TABLES}
            for activation in settings["activations"]
        }
        say(f"nonlinearities: {name} done")
    found = {"settings": dict(settings), "tasks": tasks, "record": job_record(begun, used, torch.device("cpu"))}
    write_json(out, found)
    return found


def _arm(task: Task, activation: str, table: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    errors = []
    for seed in settings["seeds"]:
        signs = Algebra(3).product()
        if table == "shuffled":
            signs = signs.shuffled(derive_seed("algebra", "signs", 3, seed) % 2**32)
        with drawn_apart("algebra", "nonlinearities", task.name, seed):
            model = network(task, activation, signs)
        train, test = (_data(task, seed, split) for split in ("train", "test"))
        step = fit(model, task, *train, steps=settings["steps"], rate=settings["learning_rate"])
        with torch.no_grad():
            error = float(task.errors(_read(task, model(test[0])), test[1]))
        errors.append(error if math.isfinite(error) else 1e6)
    seconds = cpu_seconds(step, 5)
    return {"errors": errors, "parameters": sum(p.numel() for p in model.parameters()), "step_seconds": seconds}


def _data(task: Task, seed: int, split: str) -> tuple[Tensor, Tensor]:
    """Inputs (N, inputs, 8) and targets (components, N)."""
    x, y = task.draw(seed, split)
    return x.permute(2, 0, 1).contiguous(), y


def _read(task: Task, y: Tensor) -> Tensor:
    return y[:, 0, torch.tensor(task.target_components)].T


def fit(model: nn.Module, task: Task, x: Tensor, y: Tensor, *, steps: int, rate: float):
    """Full-batch Adam with a cosine to zero, as phase 1 has it; one more step as a function, to be timed."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 + 0.5 * math.cos(math.pi * min(s / steps, 1)))
    variance = (y - y.mean(-1, keepdim=True)).square().sum()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        ((_read(task, model(x)) - y).square().sum() / variance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    for _ in range(steps):
        step()
    return step
