"""How a training runs: what decides its weights, and beside it what never does.

Neither has defaults: those live in `geomix.settings`, and what arrives here is resolved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from geomix.errors import UserError
from geomix.training.averaging import Selection


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The keys of the settings' section `training` that decide the weights, whatever is trained.

    epochs, max_updates : where the run ends (max_updates None: after the epochs).
    accumulation : batches per update; each loss is divided by it.
    optimizer : "adam" (weight decay added to the gradient) or "adamw" (decoupled).
    learning_rate, schedule, warmup : see `schedules.SCHEDULES`.
    learning_rate_by_grade : factors for what multivector layers hold in grade 0, 1, ... (`step.rate_factor`).
    clip : largest gradient norm; 0 does not clip.
    precision : "fp32", "bf16" (autocast) or "auto" (bf16 on CUDA, else fp32).
    """

    epochs: int
    max_updates: int | None
    accumulation: int
    optimizer: str
    learning_rate: float
    learning_rate_by_grade: Sequence[float]
    weight_decay: float
    schedule: str
    warmup: int
    clip: float
    precision: str

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingSettings:
        """From resolved settings, whose values the settings' types have checked; a `UserError` names a key that is unknown or absent."""
        names = [field.name for field in dataclasses.fields(cls)]
        if unknown := sorted(set(values) - set(names)):
            raise UserError(f"training.{unknown[0]} is not a setting: use {', '.join(names)}")
        if lacking := [name for name in names if name not in values]:
            raise UserError(f"training.{lacking[0]} is not given: a training takes resolved settings, in which all are")
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class TrainerOptions:
    """What never changes a weight.

    selection : the epochs whose weights stay on disk.
    detect_after : updates after which a run that emits only blanks or sits at the unigram floor is stopped; None:
        never.
    save_minutes : time between two saves of the state, besides those at each epoch's end and on SIGTERM.
    log_every : updates between two progress lines.
    tensorboard : write event files for TensorBoard into the state folder.
    """

    selection: Selection
    detect_after: int | None
    save_minutes: float
    log_every: int
    tensorboard: bool = False
