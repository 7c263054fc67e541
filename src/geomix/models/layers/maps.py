"""Linear maps that share their numbers in different ways, and the one function that makes them from settings.

Their weights start so that outputs have the variance of the inputs; biases start at 0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.algebra.operations import contract_two_sided
from geomix.algebra.structure_constants import SignedTriplets
from geomix.errors import UserError
from geomix.models.config.maps import algebra_of, table_of
from geomix.models.layers.linear import MultivectorLinear
from geomix.settings.replacements import LinearMap
from geomix.settings.sizes import rank


class AlgebraLinear(nn.Module):
    """y_o = sum_c w_oc x_c + b with algebra-valued weights under a table of dim components; widths are multiples of dim.

    With `two_sided`, y_o = sum_c (a_oc x_c) b_oc + b. Parameters: in x out / dim (twice that when two-sided), and out for the bias.
    A table of non-zero signs spans dim maps of a pair of channels by left multiplication, whatever its signs; what the two-sided
    maps span depends on the table (32 of 64 for Cl(3), about 57 for random signs).
    """

    def __init__(self, inputs: int, outputs: int, table: SignedTriplets, two_sided: bool = False) -> None:
        super().__init__()
        dim = table.out
        if inputs % dim or outputs % dim:
            raise UserError(f"widths {inputs} and {outputs} of an algebra-valued map must be multiples of {dim}")
        self.register_buffer("table", torch.from_numpy(table.dense()).float(), persistent=False)
        shape = (2 if two_sided else 1, outputs // dim, inputs // dim, dim)
        # outputs of the variance of the inputs
        variance = 1 / inputs if not two_sided else (inputs * dim) ** -0.5
        self.weight = nn.Parameter(torch.randn(shape) * variance**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def matrix(self) -> Tensor:
        """(out, in) matrix of the map."""
        if len(self.weight) == 2:
            blocks = contract_two_sided(self.table, self.weight[0], self.weight[1])
        else:
            blocks = torch.einsum("oci,ijk->ockj", self.weight[0], self.table)
        return blocks.transpose(1, 2).reshape(len(self.bias), -1)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return F.linear(x, self.matrix().to(x.dtype), self.bias)


class LowRankLinear(nn.Module):
    """y = P Q x + b with an inner width `rank`."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs)
        nn.init.normal_(self.first.weight, std=inputs**-0.5)
        nn.init.normal_(self.second.weight, std=rank**-0.5)
        nn.init.zeros_(self.second.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return self.second(self.first(x))


class GroupedLinear(nn.Module):
    """`groups` diagonal blocks, outputs shuffled between the groups so that the next map mixes them; widths are multiples of groups."""

    def __init__(self, inputs: int, outputs: int, groups: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(groups, outputs // groups, inputs // groups) * (inputs // groups) ** -0.5
        )
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        y = torch.einsum("goi,...gi->...og", self.weight, x.unflatten(-1, (len(self.weight), -1)))
        return y.flatten(-2) + self.bias


class FlatMultivectorLinear(MultivectorLinear):
    """`MultivectorLinear` between vectors (..., channels x dim)."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return super().forward(x.unflatten(-1, (self.inputs, self.algebra.dim))).flatten(-2)


def make_map(spec: LinearMap, inputs: int, outputs: int, *, width: int, seed: int) -> nn.Module:
    """A linear map (..., inputs) to (..., outputs) with a bias, in a model of this width; `seed` draws the signs of a shuffled table."""
    table = table_of(spec, seed)
    if spec.map == "multivector":
        algebra, bias = algebra_of(spec), "scalar" if spec.grades is None or 0 in spec.grades else "none"
        dim = algebra.dim
        factors = None if spec.factors is None else tuple(spec.factors)
        return FlatMultivectorLinear(
            algebra, inputs // dim, outputs // dim, spec.terms, spec.tying, bias, table, factors
        )
    if table is not None:
        return AlgebraLinear(inputs, outputs, table, spec.two_sided)
    if spec.map == "grouped":
        return GroupedLinear(inputs, outputs, spec.groups)
    if spec.map == "low_rank":
        return LowRankLinear(inputs, outputs, rank(spec, width))
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    nn.init.zeros_(layer.bias)
    return layer
