"""Other ways of computing a Clifford product, with which ours is compared: never called by a model.

`gather_scatter`, `atomic` and `opt` rebuild the three forms timed in [Parslow2026] (appendix A); `opt` reproduces its
err_opt. `index_add`, `einsum`, `sign_matrix` and `outer_matmul` are the forms that public libraries ship.
All take a (B, left) and b (B, right) and return (B, out).
"""

from __future__ import annotations

import numpy as np
import torch

from geomix.algebra.constants import constant
from geomix.algebra.operations import dense_table
from geomix.algebra.structure_constants import Algebra, SignedTriplets
from geomix.kernels.launch import check_memory, on_device_of


@constant
def _indices(table: SignedTriplets, dtype: torch.dtype, device: torch.device):
    where = [torch.as_tensor(v.astype(np.int64), device=device) for v in (table.i, table.j, table.k)]
    return *where, torch.as_tensor(table.sign.astype(np.float64), dtype=dtype, device=device)


def gather_scatter(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[Parslow2026]'s baseline: gather both operands per pair, multiply, scatter_add."""
    i, j, k, sign = _indices(table, a.dtype, a.device)
    terms = a[:, i] * b[:, j] * sign
    return a.new_zeros(len(a), table.out).scatter_add_(1, k.expand(len(a), -1), terms)


def index_add(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Gather and index_add (clifra's compact executor)."""
    i, j, k, sign = _indices(table, a.dtype, a.device)
    return a.new_zeros(len(a), table.out).index_add_(1, k, a[:, i] * b[:, j] * sign)


def einsum(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One einsum with the dense Cayley table (CEGNN, GATr)."""
    return torch.einsum("bi,ijk,bj->bk", a, dense_table(table, a.dtype, a.device), b)


def outer_matmul(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Outer product times the table as an (L^2, L) matrix (lgatr's dense path)."""
    outer = (a.unsqueeze(2) * b.unsqueeze(1)).flatten(1)
    return outer @ dense_table(table, a.dtype, a.device).flatten(0, 1)


def sign_matrix(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The matrix of a's left multiplication by one gather and signs, then a batched product (clifra's full executor)."""
    index, sign = _gather_matrix(table, a.dtype, a.device)
    return torch.bmm(a[:, index].view(len(a), table.out, table.right) * sign, b.unsqueeze(2)).squeeze(2)


@constant
def _gather_matrix(table: SignedTriplets, dtype, device):
    index, sign = np.zeros((table.out, table.right), np.int64), np.zeros((table.out, table.right))
    index[table.k, table.j], sign[table.k, table.j] = table.i, table.sign
    return torch.as_tensor(index.ravel(), device=device), torch.as_tensor(sign, dtype=dtype, device=device)


def opt(algebra: Algebra, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A dense L x L gather that is right for full algebras and wrong for truncated ones, as [Parslow2026]'s "opt" column.

    Output k receives, from every j, the partner blade i = k XOR j with its sign. In a truncated algebra that partner may not
    be retained (14 of 225 places for n = 4, k = 3; 120 of 676 for n = 5, k = 3); this form then falls back to index 0 and keeps
    the sign, so that a_0 b_j is added where nothing should be. `sign_matrix` is the same gather with sign 0 in those places.
    """
    index, sign = _opt_matrix(algebra, a.dtype, a.device)
    return ((a[:, index].view(len(a), algebra.dim, algebra.dim) * sign) * b.unsqueeze(1)).sum(2)


@constant
def _opt_matrix(algebra: Algebra, dtype, device):
    full = algebra.full
    place = {int(mask): index for index, mask in enumerate(algebra.blades)}
    signs = full.product().dense().sum(2)  # sign of e_i e_j in the full algebra
    position = {int(mask): index for index, mask in enumerate(full.blades)}
    index = np.zeros((algebra.dim, algebra.dim), np.int64)
    sign = np.zeros((algebra.dim, algebra.dim))
    for k, mask_k in enumerate(algebra.blades.tolist()):
        for j, mask_j in enumerate(algebra.blades.tolist()):
            index[k, j] = place.get(mask_k ^ mask_j, 0)
            sign[k, j] = signs[position[mask_k ^ mask_j], position[mask_j]]
    return torch.as_tensor(index.ravel(), device=device), torch.as_tensor(sign, dtype=dtype, device=device)


def atomic(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[Parslow2026]'s Triton form: one lane per (entry, pair), added to the output with atomics. CUDA or interpreter only."""
    import triton

    from geomix.benchmarks.atomic_kernel import kernel

    a, b = a.contiguous(), b.contiguous()
    check_memory("the atomic product", a, b)
    i, j, k, sign = _indices(table, torch.float32, a.device)
    out = torch.zeros(len(a), table.out, device=a.device)
    total = len(a) * len(table)
    with on_device_of(a):
        kernel[(triton.cdiv(total, 256),)](
            a, b, out, i, j, k, sign, total, len(table), table.left, table.right, table.out, BLOCK=256
        )
    return out.to(a.dtype)
