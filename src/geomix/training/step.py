"""One training step: precision, optimiser, forward and backward; and the largest batches tried before the first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from geomix.errors import UserError
from geomix.training import devices

if TYPE_CHECKING:
    from geomix.training.options import TrainingSettings
    from geomix.training.task import Batch, Task

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def uses_bf16(settings: TrainingSettings, device: torch.device) -> bool:
    """Whether the forward pass runs under bf16 autocast."""
    return settings.precision == "bf16" or (settings.precision == "auto" and device.type == "cuda")


def make_optimizer(model: nn.Module, settings: TrainingSettings, device: torch.device) -> torch.optim.Optimizer:
    """Adam or AdamW over all parameters; those that a module lists as `undecayed` are spared the weight decay.

    Each group has a `factor` on the learning rate, which is 1 but for parameters of a grade that the settings name.
    """
    spared = {id(getattr(module, name)) for module in model.modules() for name in getattr(module, "undecayed", ())}
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {(False, 1.0): []}
    for name, parameter in model.named_parameters():
        factor = rate_factor(name, settings.learning_rate_by_grade)
        groups.setdefault((id(parameter) in spared, factor), []).append(parameter)
    return OPTIMIZERS[settings.optimizer](
        [
            {"params": found, "factor": factor, "lr": settings.learning_rate * factor}
            | ({"weight_decay": 0.0} if kept else {})
            for (kept, factor), found in groups.items()
        ],
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=device.type in ("cpu", "cuda"),
    )


def rate_factor(name: str, by_grade: Sequence[float]) -> float:
    """Factor on the learning rate of the parameter of this name: of grade g for one named `...grade<g>`, as multivector layers
    store them ([Parslow2026], section 6.3), else 1."""
    grade = re.search(r"(?:^|\.)grade(\d+)$", name)
    return by_grade[int(grade[1])] if grade and int(grade[1]) < len(by_grade) else 1.0


def training_step(model: nn.Module, batch: Batch, settings: TrainingSettings) -> torch.Tensor:
    """Forward and backward of one batch, loss / accumulation added to the gradients -> the loss, on the device."""
    device = next(iter(batch.inputs.values())).device
    with torch.autocast(device.type, torch.bfloat16, enabled=uses_bf16(settings, device)):
        loss = model(**batch.inputs)["loss"]
    (loss / settings.accumulation).backward()
    return loss.detach()


def try_largest(
    name: str,
    model: nn.Module,
    task: Task,
    settings: TrainingSettings,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> set[str]:
    """Run the largest batches, changing nothing: memory that does not suffice is found now, not in epoch 3.

    Returns the operations without a deterministic implementation. A batch that does not fit is a `UserError`.
    """
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    gradients = {name: p.grad for name, p in model.named_parameters()}
    optimizer.zero_grad(set_to_none=True)
    model.train()
    found: set[str] = set()
    for batch in task.largest():
        try:
            with devices.nondeterministic_ops() as ops:
                training_step(model, batch, settings)
        except (RuntimeError, MemoryError) as error:
            if not devices.out_of_memory(error):
                raise
            raise UserError(
                f"{name}: the largest batch ({task.describe(batch)}) does not fit in the memory of "
                f"{devices.device_name(device)}: {task.smaller_batches}"
            ) from None
        finally:
            optimizer.zero_grad(set_to_none=True)
        found |= ops
    for key, buffer in model.named_buffers():
        buffer.copy_(buffers[key])
    for key, parameter in model.named_parameters():
        parameter.grad = gradients[key]
    return found
