"""The state folder of a training in progress: what is saved of it, how it is restored, which epochs' weights stay."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import nn

from geomix.tensors import state_once, write_tensors
from geomix.training import checkpoints
from geomix.training.averaging import Selection
from geomix.training.meter import Position
from geomix.training.progress import LOG, Log


@dataclasses.dataclass
class Standing:
    """What a checkpoint holds beside model, optimiser and gradients.

    metrics : epoch -> dev metrics of the epochs done
    selection : of the epochs whose weights stay on disk
    nondeterministic_ops : operations of a step without a deterministic implementation
    """

    selection: Selection
    position: Position = dataclasses.field(default_factory=Position)
    metrics: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)
    nondeterministic_ops: list[str] = dataclasses.field(default_factory=list)


class StateFolder:
    """The folder of one training, which the caller has locked (`store.opened`); `log` is open from `restore` to `close`."""

    log: Log

    def __init__(self, folder: Path, identity: checkpoints.Identity) -> None:
        self.folder, self._identity = folder, identity

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, standing: Standing) -> None:
        """Write a checkpoint; gradients of an unfinished accumulation are in it."""
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "gradients": {n: p.grad for n, p in model.named_parameters() if p.grad is not None},
            "position": dataclasses.asdict(standing.position),
            "metrics": standing.metrics,
            "selection": dataclasses.asdict(standing.selection),
            "nondeterministic_ops": standing.nondeterministic_ops,
            "log_length": self.log.synchronised_length(),
        }
        checkpoints.save_state(self.folder, state, self._identity)

    def restore(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
    ) -> tuple[Standing | None, str | None]:
        """Load the newest whole checkpoint into model and optimiser: where it stands, or None without any, and a warning or None.

        The log is cut back to that point and opened. A folder of another training is a `UserError`.
        """
        for path in self.folder.glob(".*.tmp"):  # what a kill left half written
            path.unlink()
        state, warning = checkpoints.load_state(self.folder, self._identity, map_location=device)
        self.log = Log(self.folder / LOG, state["log_length"] if state else 0)
        if state is None:
            return None, warning
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for name, parameter in model.named_parameters():
            parameter.grad = state["gradients"].get(name)
        standing = Standing(
            selection=Selection(**state["selection"]),
            position=Position(**state["position"]),
            metrics=state["metrics"],
            nondeterministic_ops=state["nondeterministic_ops"],
        )
        return standing, warning

    def keep(self, epoch: int, model: nn.Module) -> None:
        """Write the weights of an epoch."""
        write_tensors(self._weights(epoch), state_once(model))

    def prune(self, best: list[int]) -> None:
        """Remove weights that are not among the best: those overtaken, and those later than the checkpoint resumed."""
        kept = {self._weights(epoch) for epoch in best}
        for path in self.folder.glob(checkpoints.LAYOUT.weights.format("*")):
            if path not in kept:
                path.unlink()

    def close(self) -> None:
        """Close the log."""
        self.log.close()

    def _weights(self, epoch: int) -> Path:
        return self.folder / checkpoints.LAYOUT.weights.format(epoch)
