"""What jobs of the study share: training to the best epoch, and what a training step costs in CPU time and kept memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from geomix.tensors import load_state
from geomix.training.checkpoints import LAYOUT, Identity
from geomix.training.loop import Batch, Summary, Trainer, TrainingSettings, training_step
from geomix.training.record import training_record
from geomix.training.store import Request, User, opened


def train_to_best(
    model: nn.Module,
    task: Any,
    options: TrainingSettings,
    settings: Mapping[str, Any],
    data_hashes: Mapping[str, str],
    user: User,
    *,
    state: str | Path,
) -> Summary:
    """Train a model on the CPU, or go on where it was interrupted, and leave the best epoch's weights in it, in eval mode.

    settings, data_hashes : all that decides the weights; user : who asks; state : the store (`training.store`)
    """
    request = Request(settings, data_hashes, user, LAYOUT, options.selection, schedule=None)
    with opened(Path(state), request) as found:
        run = Trainer(
            model,
            task,
            options,
            state_dir=found.folder,
            identity=Identity(found.folder.name, {**settings, "hashes": dict(data_hashes)}),
            seed=user.seed,
            device=torch.device("cpu"),
            name=user.name,
        ).run()
        found.finish(run.metrics, training_record(run, torch.device("cpu"), torch.get_num_threads()))
        load_state(model, load_file(found.folder / LAYOUT.weights.format(run.best[0])))
    model.eval()
    return run


def step_costs(model: nn.Module, batch: Batch, options: TrainingSettings, repeats: int) -> dict[str, float]:
    """`activation_bytes` and `step_seconds` of one training step of a model in training mode."""
    leaves = (*model.parameters(), *batch.inputs.values())
    return {
        "activation_bytes": kept_bytes(lambda: model(**batch.inputs)["loss"], leaves),
        "step_seconds": cpu_seconds(lambda: training_step(model, batch, options), repeats),
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
