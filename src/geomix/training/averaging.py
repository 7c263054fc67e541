"""Mean of the best epochs' weights, as ESPnet averages them, but integer buffers are copied instead of summed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from geomix.errors import UserError
from geomix.files import write_json
from geomix.training.progress import say


def best_epochs(scores: Mapping[int, float], keep: int) -> list[int]:
    """The `keep` epochs with the smallest score, best first; the earlier of two equal ones first, NaN last of all."""
    return sorted(scores, key=lambda epoch: (math.isnan(scores[epoch]), scores[epoch], epoch))[:keep]


def write_averaging(choice: Mapping[str, Any], wanted: int, out: Path) -> dict[str, Any]:
    """Write averaging.json into `out` and return it: the epochs, how many were wanted, and a note when the training had fewer.

    choice : epochs.json of the training, `kept` epochs by a `metric`.
    """
    averaging = {"epochs": choice["kept"], "metric": choice["metric"], "wanted": wanted, "note": None}
    if len(choice["kept"]) < wanted:
        averaging["note"] = f"{len(choice['kept'])} epochs averaged instead of {wanted}: the training had no more"
        say(f"{out}: {averaging['note']}")
    write_json(out / "averaging.json", averaging)
    return averaging


def average_weights(paths: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Mean over the files of each floating tensor, summed in float64; other tensors are the last file's.

    Raises UserError for no file, a missing one, one with other tensors, or one that holds NaN or infinity.
    """
    if not paths:
        raise UserError("no epoch to average: the training has kept none")
    sums: dict[str, torch.Tensor] = {}
    for path in paths:
        try:
            weights = load_file(path)
        except FileNotFoundError:
            raise UserError(f"{path}: missing; remove its state folder and train again") from None
        except Exception as error:  # safetensors raises its own class for a damaged file
            raise UserError(f"{path}: damaged ({error}); remove its state folder and train again") from None
        if sums and {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in sums.items()}:
            raise UserError(f"{path}: other tensors than {paths[0]}; remove their state folder and train again")
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
