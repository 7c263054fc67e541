"""The geometry dial: a pair product whose signs are real numbers, so that a training can turn them.

`PairProduct` holds signs of +1 and -1 alone. Here c_ij = a_i b_j + s_ij a_j b_i with any real s_ij: -1 is the wedge, +1 the symmetric
control, and between them c = (1 - s) / 2 wedge + (1 + s) / 2 symmetric, coordinate by coordinate.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geomix.algebra.constants import constant
from geomix.algebra.operations import at_least_fp32, safe_sqrt
from geomix.algebra.pair_product import SMALL, PairProduct, floored_norm, product_of_kind


@dataclass(frozen=True, eq=False)
class SignDial:
    """a_i b_j + s_ij a_j b_i, i < j in lexicographic order, of vectors of r numbers.

    Attributes:
        signs: (r (r - 1) / 2,) the s_ij, any real numbers; gradients flow into them through the product and through its norm.
        wedge, symmetric: the two products between which the signs turn, of the same r.
    """

    signs: Tensor
    wedge: PairProduct
    symmetric: PairProduct

    @classmethod
    def of(cls, signs: Tensor, r: int) -> SignDial:
        """The product of vectors of r numbers."""
        return cls(signs, product_of_kind("wedge", r), product_of_kind("symmetric", r))

    @property
    def in_dim(self) -> int:
        """Length r of both arguments."""
        return self.wedge.in_dim

    @property
    def out_dim(self) -> int:
        """Number of coordinates."""
        return self.wedge.out_dim

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """(..., r) and (..., r), which broadcast, to (..., r (r - 1) / 2)."""
        self.check(a, b)
        i, j = _pairs(self.in_dim, a.device)
        at = lambda x, index: x.index_select(-1, index)
        return at(a, i) * at(b, j) + self.signs.to(a.dtype) * at(a, j) * at(b, i)

    def check(self, *vectors: Tensor) -> None:
        """ValueError unless the last axis of each is `in_dim`."""
        for x in vectors:
            if x.shape[-1] != self.in_dim:
                raise ValueError(f"this product takes vectors of {self.in_dim} numbers, got {x.shape[-1]}")

    def halves(self, weight: Tensor) -> tuple[tuple[PairProduct, Tensor], tuple[PairProduct, Tensor]]:
        """(wedge, W (1 - s) / 2) and (symmetric, W (1 + s) / 2): W c is the sum of the two products under their projections.

        weight : (D, r (r - 1) / 2) projection W.
        """
        signs = self.signs.to(weight.dtype)
        return (self.wedge, weight * ((1 - signs) / 2)), (self.symmetric, weight * ((1 + signs) / 2))

    def sq_norm(self, a: Tensor, b: Tensor) -> Tensor:
        """|c|^2 over the last axis for any real signs, with A = a.a and u = a * b (elementwise):

            A |b - (a.b / A) a|^2 + sum over i != j of (1 + s_ij) u_i u_j + sum over i < j of (s_ij^2 - 1) a_j^2 b_i^2

        The first term is the wedge's, free of cancellation, and the others vanish at s = -1. The last one depends on the order of
        the coordinates where |s| is not 1, as the coordinates c_ij do. Below r = 8 the squares of the coordinates are summed.
        """
        self.check(a, b)
        return self._sq_norm(at_least_fp32(a), at_least_fp32(b)).to(torch.promote_types(a.dtype, b.dtype))

    def _sq_norm(self, a: Tensor, b: Tensor) -> Tensor:
        if self.in_dim < SMALL:
            return self(a, b).square().sum(-1)
        u, squares = a * b, a.square()
        A, signs = squares.sum(-1), self.signs.to(a.dtype)
        ratio = u.sum(-1) / torch.where(A > 0, A, 1.0)
        wedge = A * (b - ratio.unsqueeze(-1) * a).square().sum(-1)
        upper = self._matrix(1 + signs)
        both = ((u @ upper) * u).sum(-1) * 2  # over i < j, each pair twice
        order = ((b.square() @ self._matrix(signs.square() - 1)) * squares).sum(-1)
        return (wedge + both + order).clamp_min(0)

    def _matrix(self, values: Tensor) -> Tensor:
        """(r, r): the value of the pair (i, j) at row i < column j, zero elsewhere."""
        i, j = _pairs(self.in_dim, values.device)
        flat = values.new_zeros(self.in_dim * self.in_dim).index_copy(0, i * self.in_dim + j, values)
        return flat.view(self.in_dim, self.in_dim)

    def norm(self, a: Tensor, b: Tensor) -> Tensor:
        """|c|; its gradient is zero where the norm is zero."""
        self.check(a, b)
        squared = self._sq_norm(at_least_fp32(a), at_least_fp32(b))
        return safe_sqrt(squared).to(torch.promote_types(a.dtype, b.dtype))

    def normaliser(self, a: Tensor, b: Tensor, min_sine: float = 1e-3, eps: float = 1e-6) -> Tensor:
        """max(|c|, min_sine |a| |b|, eps), as `PairProduct.normaliser`."""
        self.check(a, b)
        return floored_norm(self._sq_norm, a, b, min_sine, eps)


@constant
def _pairs(r: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The indices i < j of all pairs, in lexicographic order."""
    i, j = np.array(list(itertools.combinations(range(r), 2))).T
    return torch.as_tensor(i, device=device), torch.as_tensor(j, device=device)
