"""Ways into and out of multivectors, and from a scalar model ([Parslow2026], sections 6.3 and 6.4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geomix.algebra import Algebra
from geomix.errors import UserError
from geomix.models.layers.grades import Grades
from geomix.models.layers.linear import MultivectorLinear


class ToMultivector(nn.Module):
    """Adapter (..., width) to (..., channels, dim): a linear map onto the components of `grades` (all by default), 0 elsewhere."""

    def __init__(self, algebra: Algebra, width: int, channels: int, grades: tuple[int, ...] | None = None) -> None:
        super().__init__()
        kept = algebra.grades if grades is None else grades
        places = torch.tensor([i for i, g in enumerate(algebra.grade.tolist()) if g in kept])
        if not len(places):
            raise UserError(f"grades {kept} of an adapter are not among those of {algebra}")
        self.algebra, self.channels = algebra, channels
        self.register_buffer("places", places, persistent=False)
        self.linear = nn.Linear(width, channels * len(places))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to (..., channels, dim)."""
        y = self.linear(x).unflatten(-1, (self.channels, -1))
        return y.new_zeros(*y.shape[:-1], self.algebra.dim).index_copy(-1, self.places, y)


class FromMultivector(nn.Module):
    """Adapter (..., channels, dim) to (..., width), linear in the components, or, with `invariant`, in the grades' norms."""

    def __init__(self, algebra: Algebra, channels: int, width: int, invariant: bool = False) -> None:
        super().__init__()
        self.grades = Grades(algebra) if invariant else None
        self.linear = nn.Linear(channels * (len(algebra.grades) if invariant else algebra.dim), width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels, dim) to (..., width)."""
        return self.linear((x if self.grades is None else self.grades(x)).flatten(-2))


@torch.no_grad()
def initialise_from_scalar(
    layer: MultivectorLinear, weight: Tensor, bias: Tensor | None = None, noise: float = 1e-3
) -> None:
    """A scalar baseline's weights on grade 0 and small noise above ([Parslow2026], section 6.3).

    With noise 0 the layer maps scalars exactly as F.linear(x, weight, bias) does. Further terms start as noise.
    `weight` (outputs, inputs), `bias` (outputs,).
    """
    if weight.shape != (layer.outputs, layer.inputs):
        raise UserError(
            f"scalar weight of shape {tuple(weight.shape)} does not fit a map of {layer.inputs} to {layer.outputs}"
        )
    if 0 not in layer.algebra.grades:
        raise UserError(f"{layer.algebra} has no grade 0 to hold scalar weights")
    for parameter in layer.parameters():
        parameter.normal_(std=noise) if noise else parameter.zero_()
    if layer.mixing is not None:
        layer.mixing.of(0)[0, ..., 0] = weight
    if layer.terms:
        layer.right.of(0)[0] += 1
        if layer.mixing is None:
            layer.left.of(0)[0, ..., 0] = weight
        else:
            layer.left.of(0)[0] += 1
    if layer.bias is not None:
        layer.bias.zero_()
        if bias is not None:
            layer.bias[:, 0] = bias
