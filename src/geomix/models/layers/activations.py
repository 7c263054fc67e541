"""Nonlinearities of multivectors ([Parslow2026], section 4.4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.algebra import Algebra
from geomix.models.layers.grades import Grades


class NormActivation(nn.Module):
    """Each grade's direction kept and its magnitude n mapped to n sigmoid(a n + b) (section 4.4, first option); equivariant.

    Written as a factor on the grade, so that nothing is divided by the magnitude; a and b are learned per channel and grade.
    """

    def __init__(self, algebra: Algebra, channels: int) -> None:
        super().__init__()
        self.grades = Grades(algebra)
        self.slope = nn.Parameter(torch.ones(channels, len(algebra.grades)))
        self.offset = nn.Parameter(torch.zeros(channels, len(algebra.grades)))

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels, dim) to the same."""
        return x * self.grades.expand(torch.sigmoid(self.slope * self.grades(x) + self.offset))


class ComponentActivation(nn.Module):
    """A scalar nonlinearity on every coefficient (section 4.4, second option); not equivariant."""

    def __init__(self, function=F.gelu) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) to the same."""
        return self.function(x)


class GradeGate(nn.Module):
    """<M>_g -> gate_g sigma(<M>_g) with a learned gate per channel and grade (section 4.4, third option); not equivariant."""

    def __init__(self, algebra: Algebra, channels: int, function=F.gelu) -> None:
        super().__init__()
        self.grades, self.function = Grades(algebra), function
        self.gate = nn.Parameter(torch.ones(channels, len(algebra.grades)))

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels, dim) to the same."""
        return self.grades.expand(self.gate) * self.function(x)
