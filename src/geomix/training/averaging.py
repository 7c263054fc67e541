"""Choice of the best epochs, and the mean of their weights: as ESPnet averages, but integer buffers are copied instead of summed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomix.errors import UserError
from geomix.files import read_object, write_json
from geomix.training.progress import say

if TYPE_CHECKING:
    from torch import Tensor

_EPOCH = re.compile("[1-9][0-9]{0,8}")

Metrics = Mapping[int, Mapping[str, float | None]]
"""epoch -> dev metric -> its value; None stands for one that is no number."""


@dataclass(frozen=True)
class Selection:
    """Which epochs are averaged: the `keep_best` with the smallest `best_by`, a dev metric. It decides no training's weights."""

    keep_best: int
    best_by: str

    def scores(self, epochs: Metrics) -> dict[int, float]:
        """The metric of each epoch, NaN where it was no number; `UserError` for one that was not measured."""
        for values in epochs.values():
            if self.best_by not in values:
                known = ", ".join(sorted(key for key in values if key.startswith("dev_")))
                raise UserError(
                    f"training.best_by {self.best_by!r}: this training measured {known}: choose one of them"
                )
        found = {epoch: values[self.best_by] for epoch, values in epochs.items()}
        return {epoch: math.nan if value is None else value for epoch, value in found.items()}

    def best(self, epochs: Metrics) -> list[int]:
        """The chosen epochs, best first."""
        return best_epochs(self.scores(epochs), self.keep_best)


def best_epochs(scores: Mapping[int, float], keep: int) -> list[int]:
    """The `keep` epochs with the smallest score, best first; the earlier of two equal ones first, NaN last of all."""
    return sorted(scores, key=lambda epoch: (math.isnan(scores[epoch]), scores[epoch], epoch))[:keep]


def epochs_of(path: Path, found: Mapping[str, Any]) -> dict[int, dict[str, float | None]]:
    """The dev metrics by epoch that stand in `found`, which was read from `path`; `UserError` for what is none."""
    epochs = found["epochs"]
    number = lambda value: value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    if (
        not isinstance(epochs, dict)
        or not all(_EPOCH.fullmatch(epoch) for epoch in epochs)
        or not all(isinstance(metrics, dict) and all(map(number, metrics.values())) for metrics in epochs.values())
    ):
        raise UserError(
            f"{path}: `epochs` does not hold dev metrics by epoch: remove it and run the step that makes it again"
        )
    return {int(epoch): metrics for epoch, metrics in epochs.items()}


@dataclass(frozen=True)
class Epochs:
    """What a training left to choose from (epochs.json): its state folder and the dev metrics of all its epochs."""

    state: Path
    metrics: Metrics

    @classmethod
    def read(cls, path: Path) -> Epochs:
        """From the file that the train step wrote."""
        found = read_object(path, "state", "epochs")
        if not isinstance(found["state"], str) or "\0" in found["state"]:
            raise UserError(f"{path}: names no state folder: remove it and run the step that makes it again")
        return cls(Path(found["state"]), epochs_of(path, found))

    def chosen(self, selection: Selection, weights: str) -> list[int]:
        """The epochs to average, best first; a `UserError` names those whose file is no longer kept.

        weights : name of an epoch's file in the state folder, with {} for the epoch
        """
        best = selection.best(self.metrics)
        gone = [epoch for epoch in best if not (self.state / weights.format(epoch)).exists()]
        if gone:
            usable = best.index(gone[0])
            smaller = f"lower training.keep_best to {usable}, or " if usable else ""
            raise UserError(
                f"{self.state}: of the {len(best)} best epochs by {selection.best_by}, the weights of "
                f"{', '.join(map(str, sorted(gone)))} are no longer kept: {smaller}remove the training with `geomix forget` and "
                "train again"
            )
        return best


def write_averaging(epochs: Epochs, best: Sequence[int], selection: Selection, out: Path) -> dict[str, Any]:
    """Write averaging.json into `out` and return it: the epochs, how many were wanted, and a note when the training had fewer."""
    scores = selection.scores(epochs.metrics)
    kept = [{"epoch": epoch, "score": None if math.isnan(scores[epoch]) else scores[epoch]} for epoch in best]
    wanted = selection.keep_best
    averaging = {
        "training": epochs.state.name,  # the hash that its record has too
        "epochs": kept,
        "metric": selection.best_by,
        "wanted": wanted,
        "note": None,
    }
    if len(kept) < wanted:
        averaging["note"] = f"{len(kept)} epochs averaged instead of {wanted}: the training had no more"
        say(f"{out}: {averaging['note']}")
    write_json(out / "averaging.json", averaging)
    return averaging


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Mean over the files of each floating tensor, summed in float64; other tensors are the last file's.

    Raises UserError for no file, a missing one, one with other tensors, or one that holds NaN or infinity.
    """
    import torch
    from safetensors.torch import load_file

    if not paths:
        raise UserError("no epoch to average: the training has kept none")
    sums: dict[str, Tensor] = {}
    for path in paths:
        try:
            weights = load_file(path)
        except FileNotFoundError:
            raise UserError(f"{path}: missing; remove the training with `geomix forget` and train again") from None
        except Exception as error:  # safetensors raises its own class for a damaged file
            raise UserError(
                f"{path}: damaged ({error}); remove the training with `geomix forget` and train again"
            ) from None
        if sums and {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in sums.items()}:
            raise UserError(
                f"{path}: other tensors than {paths[0]}; remove the training with `geomix forget` and train again"
            )
        for name, tensor in weights.items():
            if not tensor.is_floating_point():
                sums[name] = tensor
                continue
            if not torch.isfinite(tensor).all():
                raise UserError(
                    f"{path}: {name} holds NaN or infinity: the training diverged; lower training.learning_rate and train again"
                )
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    dtypes = {name: tensor.dtype for name, tensor in weights.items()}
    return {name: (t / len(paths)).to(dtypes[name]) if t.is_floating_point() else t for name, t in sums.items()}
