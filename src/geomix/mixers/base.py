"""What the arguments of every mixer of the house are: a pydantic model, without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from geomix.errors import UserError

Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Size:
    """Size of one block's mixer.

    parameters : those that are trained
    macs_per_frame : frames of a sequence -> multiply-adds per frame
    from_linear_maps : whether these are those of its linear maps, since the mixer (a user's own) says nothing of them
    """

    parameters: int
    macs_per_frame: Callable[[int], float]
    from_linear_maps: bool = False


class Arguments(BaseModel, ABC):
    """Arguments of one mixer as a configuration may name them; `mixer` is its name. Fields are documented by their descriptions.

    `version` rises with every change of the mixer's code that changes its output: trainings of the version before then count
    as other trainings. Golden outputs (tests/mixers/test_golden.py) fail with that sentence when it was forgotten.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    version: ClassVar[int] = 1

    @abstractmethod
    def parameters(self, width: int) -> int:
        """Trainable parameters of the mixer of one block."""

    @abstractmethod
    def macs_per_frame(self, width: int, frames: int) -> float:
        """Multiply-adds of its matrix products per frame, in a sequence of `frames`."""

    def check(self, width: int, named: str = "width") -> None:
        """`UserError` for arguments that fit no model of this width; `named` is how its key is called."""


def argument(default: Any, meaning: str, before: Any = None, **bounds: Any) -> Any:
    """An argument of a mixer: it decides what is trained. `before`, of one that was added later: see `settings.base.key`."""
    extra = {"reach": ["train", "report"]} | ({} if before is None else {"before": before})
    factory = {"default_factory": lambda: list(default)} if isinstance(default, list) else {"default": default}
    return Field(description=meaning, json_schema_extra=extra, **factory, **bounds)


def unique(values: list[int] | None) -> list[int] | None:
    """Refuse a value that is listed twice."""
    for position, value in enumerate(values or ()):
        if value in values[:position]:
            raise ValueError(f"lists {value} twice: leave one out")
    return values


def check_heads(heads: int, width: int, named: str) -> None:
    """`UserError` unless the heads divide the width."""
    if width % heads:
        raise UserError(f"heads {heads} does not divide {named} {width}: choose a divisor of it")
