"""Forms: ways of computing the same, which must agree in values and in gradients before one is called faster."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geomix.benchmarks.clock import Timing
from geomix.errors import UserError

FORWARD, BACKWARD = "forward", "forward+backward"
# largest difference, as a share of the largest number of what is compared with: what rounding explains in this type
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class Form:
    """One way: `forward` computes the value of `leaves`, whose gradients are those of `upstream`, the value's gradient.

    plain : `forward` without gradients, where that is another call.
    restore : brings value and gradients, which lie in the form's own layout, into that of the definition.
    """

    forward: Callable[[], Tensor]
    leaves: Sequence[Tensor]
    upstream: Tensor
    plain: Callable[[], Tensor] | None = None
    restore: Callable[[Tensor], Tensor] = lambda x: x

    def backward(self) -> tuple[Tensor, ...]:
        """Forward and backward: the gradients."""
        value = self.forward()
        return torch.autograd.grad(value, self.leaves, self.upstream.to(value.dtype))

    def outcome(self, gradients: bool = True) -> list[Tensor]:
        """Value, and gradients in the order of the leaves."""
        with torch.set_grad_enabled(gradients):
            value = self.forward() if gradients or self.plain is None else self.plain()
        found = torch.autograd.grad(value, self.leaves, self.upstream.to(value.dtype)) if gradients else ()
        return [self.restore(x.detach()) for x in (value, *found)]


@dataclass(frozen=True)
class Agreement:
    """Largest differences of a value and of a gradient (None: it has none); `relative` is the larger one as a share (`compare`)."""

    value: float
    gradient: float | None
    relative: float
    tolerance: float

    def __bool__(self) -> bool:
        """Values and gradients were both compared, and neither differs by more than rounding."""
        return self.gradient is not None and self.relative <= self.tolerance


def compare(found: Sequence[Tensor], truth: Sequence[Tensor], tolerance: float) -> Agreement:
    """How far an outcome (value, gradients) lies from another, each tensor relative to its largest number.

    A gradient that is 0 but for rounding (of a bias before a norm) is compared with a thousandth of the largest of all.
    """
    absolute = torch.stack([(a.to(b) - b).abs().max() for a, b in zip(found, truth, strict=False)])
    scale = torch.stack([b.abs().max() for b in truth[: len(found)]])
    scale[1:] = scale[1:].clamp(min=1e-3 * scale[1:].max()) if len(found) > 1 else scale[1:]
    gradient = absolute[1:].max().item() if len(found) > 1 else None
    relative = (absolute / scale.clamp(min=1e-30)).max().item()  # a NaN stays one, and agrees with nothing
    return Agreement(absolute[0].item(), gradient, relative, tolerance)


def require(agreements: Mapping[str, Agreement], what: str) -> None:
    """UserError, before anything is timed, unless all agree."""
    for form, found in agreements.items():
        if not found:
            raise UserError(
                f"{what}: {form} differs by {found.relative:.1e} of the largest number, where {found.tolerance:.0e} is rounding: "
                "nothing is timed, mend it first"
            )


def speed_up(ours: Timing, theirs: Timing, *agreements: Agreement) -> float | None:
    """How many times as fast as theirs ours is, the median over rounds; None unless all of `agreements` hold."""
    if not agreements or not all(agreements):
        return None
    return statistics.median(b / a for a, b in zip(ours.wall, theirs.wall, strict=True))
