"""The definition of a bilinear map given by signed triplets: every fast version is compared with this one."""

from __future__ import annotations

import torch

from geomix.algebra.structure_constants import SignedTriplets


def bilinear(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """out[k] = sum over the triplets (i, j, k, sign) of sign * a[i] * b[j].

    a (left, N), b (right, N) -> (out, N), component-major; differentiable by autograd, any dtype and device.
    """
    dtype = torch.promote_types(a.dtype, b.dtype)
    rows: list[torch.Tensor | None] = [None] * table.out
    for i, j, k, sign in zip(*(v.tolist() for v in (table.i, table.j, table.k, table.sign)), strict=True):
        term = a[i] * b[j] if sign > 0 else -(a[i] * b[j])
        rows[k] = term if rows[k] is None else rows[k] + term
    zero = torch.zeros(a.shape[1:], dtype=dtype, device=a.device)
    return torch.stack([zero if row is None else row for row in rows])


def bilinear_backward(
    table: SignedTriplets, a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(d_a, d_b) of `bilinear` for d_out = grad (out, N): the same map with two permuted tables."""
    return bilinear(table.gradient_left(), grad, b), bilinear(table.gradient_right(), a, grad)
