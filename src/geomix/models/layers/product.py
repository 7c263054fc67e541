"""The geometric product as a layer: of multivectors, and of stacks of models with a table each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from geomix.algebra import Algebra, SignedTriplets
from geomix.kernels.product import cpu, product
from geomix.kernels.product.sums_of_products import backward_sums, forward_sums
from geomix.models.layers.linear import MultivectorLinear


class ProductLayer(nn.Module):
    """y = (U x)(V x) + W x with three equivariant channel mixings: the geometric product as a nonlinearity.

    The product and the residual use three maps of x, one each (documentation and code say the same: GATr issue #4).
    """

    def __init__(self, algebra: Algebra, inputs: int, outputs: int, terms: int = 0, tying: str = "grade") -> None:
        super().__init__()
        self.algebra, self.triplets = algebra, algebra.product()
        self.first, self.second, self.linear = (
            MultivectorLinear(algebra, inputs, outputs, terms, tying) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs, dim) to (..., outputs, dim)."""
        return product(self.triplets, self.first(x), self.second(x)) + self.linear(x)


class _StackedProduct(torch.autograd.Function):
    """Products of (T, dim, ...) stacks, each under its own table, by the compiled kernels."""

    @staticmethod
    def forward(ctx, tables, a, b):
        ctx.tables = tables
        ctx.save_for_backward(a, b)
        out = torch.empty_like(a)
        for t, table in enumerate(tables):
            left, right, to = (x[t].view(a.shape[1], -1) for x in (a, b, out))
            cpu.run((forward_sums, table), (left, right), (to,))
        return out

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        grad, da, db = grad.contiguous(), torch.empty_like(a), torch.empty_like(b)
        for t, table in enumerate(ctx.tables):
            rows = [x[t].view(a.shape[1], -1) for x in (a, b, grad, da, db)]
            cpu.run((backward_sums, table), tuple(rows[:3]), tuple(rows[3:]))
        return None, da, db


def stacked_product(tables: Sequence[SignedTriplets], a: Tensor, b: Tensor) -> Tensor:
    """(T, dim, ...) and (T, dim, ...) to (T, dim, ...): table t multiplies the t-th of the stack."""
    if a.device.type == "cpu" and a.dtype in cpu.LANES and a.is_contiguous() and b.is_contiguous():
        return _StackedProduct.apply(tuple(tables), a, b)
    parts = zip(tables, a.unbind(0), b.unbind(0), strict=True)
    return torch.stack([product(table, x.flatten(1), y.flatten(1), components=0).view_as(x) for table, x, y in parts])


def dense_product(tables: Sequence[SignedTriplets], a: Tensor, b: Tensor) -> Tensor:
    """`stacked_product` as one contraction with the dense tables: the definition, any dtype."""
    dense = torch.tensor(np.stack([table.dense() for table in tables]), dtype=a.dtype, device=a.device)
    return torch.einsum("ti...,tj...,tijk->tk...", a, b, dense)
