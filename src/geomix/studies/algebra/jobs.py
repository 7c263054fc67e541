"""What jobs of the study measure: what a training step costs in CPU time and kept memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from geomix.training.options import TrainingSettings
from geomix.training.step import training_step
from geomix.training.task import Batch


def step_costs(model: nn.Module, batch: Batch, settings: TrainingSettings, repeats: int) -> dict[str, float]:
    """`activation_bytes` and `step_seconds` of one training step of a model in training mode."""
    leaves = (*model.parameters(), *batch.inputs.values())
    return {
        "activation_bytes": kept_bytes(lambda: model(**batch.inputs)["loss"], leaves),
        "step_seconds": cpu_seconds(lambda: training_step(model, batch, settings), repeats),
    }


def kept_bytes(forward: Callable[[], Tensor], leaves: Iterable[Tensor]) -> int:
    """Bytes that `forward` keeps for the backward pass; storages of `leaves` (parameters, data) are not counted."""
    held = {x.untyped_storage().data_ptr() for x in leaves}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = forward()
    del out
    return sum(kept.values())


def cpu_seconds(call: Callable[[], object], repeats: int = 1) -> float:
    """CPU time of one call of this process, mean of `repeats` after one warm-up: other work on the machine does not count."""
    call()
    begun = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - begun) / repeats
