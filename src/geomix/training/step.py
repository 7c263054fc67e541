"""One training step: precision, optimiser, forward and backward; and the largest batches tried before the first."""

from __future__ import annotations

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
    """Adam or AdamW over all parameters; those that a module lists as `undecayed` are spared the weight decay."""
    spared = {id(getattr(module, name)) for module in model.modules() for name in getattr(module, "undecayed", ())}
    groups = [{"params": [p for p in model.parameters() if id(p) not in spared]}]
    if kept := [p for p in model.parameters() if id(p) in spared]:
        groups.append({"params": kept, "weight_decay": 0.0})
    return OPTIMIZERS[settings.optimizer](
        groups,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=device.type in ("cpu", "cuda"),
    )


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
