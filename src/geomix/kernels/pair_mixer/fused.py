"""The pair mixer in Triton: pair features are formed in registers, tile by tile, and never written to memory.

The pairs i < j of r numbers are visited by cyclic distance m = 1 .. r // 2: tile m holds, for c = 0 .. r - 1, the feature of
(c, c + m mod r), so that both factors are rows read at an offset and 496 features are 15.5 tiles of 32 without a gather. A pair
that wraps around appears with i and j exchanged, i.e. times its sign; that sign goes into the permuted projection. One program
handles a tile of frames: it sums feature tile x projection tile into g, adds the bias, multiplies [u; g] by the gate's
weights, and blends. g and alpha are kept for the backward pass, which forms the feature tiles again.

For a_c b_e + s a_e b_c, past partners p enter as f(p, z) and future ones q as f.swap()(q, z), so one tile is
    (p_c + s q_c) z_e + (s p_e + q_e) z_c,        e = c + m mod r;
the dot product of the geometric kind is one more tile with m = 0 and s = 0. All sums are fp32; matrix products take the
storage type of `dtype`. No atomics: results are bitwise reproducible. Tiles are as large as the device's shared memory lets
them be (`tiling.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from geomix.algebra.constants import constant
from geomix.algebra.pair_product import PairProduct
from geomix.kernels.launch import check_memory, on_device_of
from geomix.kernels.pair_mixer.fused_kernels import _backward_kernel, _forward_kernel, _table_gradient_kernel
from geomix.kernels.pair_mixer.tiling import Tiling, block, shared_limit, tilings

WARPS = 8  # g (32 x 256 fp32) and the gate's sums fit their registers
FRAME_SPLITS = 64  # most parts over which the projection's gradient is summed


class Tiles(NamedTuple):
    """The cyclic tiles of a product: (tiles, r) arrays of the feature's index, its factor and its sign; (tiles,) distances."""

    feature: Tensor
    factor: Tensor
    sign: Tensor
    shift: Tensor


@constant
def cyclic_tiles(f: PairProduct, device: torch.device) -> Tiles:
    """Tiles of a product that has `pair_terms`; places without a pair have factor 0."""
    terms, r = f.pair_terms, f.in_dim
    distance = terms.j - terms.i
    wrapped = 2 * distance > r
    row = np.where(wrapped, r - distance, distance) - 1
    column = np.where(wrapped, terms.j, terms.i)
    feature, factor, sign = (np.zeros((r // 2, r), np.int64) for _ in range(3))
    feature[row, column] = terms.feature
    factor[row, column] = terms.lead * np.where(wrapped, terms.sign, 1)
    sign[row, column] = terms.sign
    shift = np.arange(1, r // 2 + 1)
    if terms.dot is not None:
        feature = np.concatenate((feature, np.full((1, r), terms.dot)))
        factor = np.concatenate((factor, np.full((1, r), terms.dot_sign)))
        sign, shift = np.concatenate((sign, np.zeros((1, r), np.int64))), np.append(shift, 0)
    as_tensor = lambda x, dtype: torch.as_tensor(x, dtype=dtype, device=device)
    return Tiles(
        as_tensor(feature, torch.int64),
        as_tensor(factor, torch.float32),
        as_tensor(sign, torch.float32),
        as_tensor(shift, torch.int32),
    )


def fused_pair_mixer(
    f: PairProduct,
    u: Tensor,
    past: Tensor,
    future: Tensor | None,
    z: Tensor,
    weight: Tensor,
    project: Tensor,
    project_bias: Tensor,
    gate: Tensor,
    gate_bias: Tensor,
    blend: bool,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """`naive.pair_mixer` from the anchors of `pair_features.anchored.anchors`.

    u (N, D); past, future (or None), z (N, r); weight (N,) of the projection's bias per frame; project (D, K); gate (D, 2 D)
    -> (N, D) in u's dtype. `dtype`: storage of the matrix products' operands (u's by default). Any N, D and r.
    """
    check_memory("the fused pair mixer", u, past, future, z, weight, project, project_bias, gate, gate_bias)
    tiles = cyclic_tiles(f, u.device)
    dtype = dtype or u.dtype
    # (tiles, r, D): the projection's columns in tile order; its gradient flows back through this gather
    table = project.t()[tiles.feature] * tiles.factor.unsqueeze(-1).to(project.dtype)
    rows = [None if x is None else _dense(x.to(torch.float32)) for x in (past, future, z)]
    apply = torch.ops.geomix.fused_pair_mixer if torch.compiler.is_compiling() else _FusedPairMixer.apply
    return apply(
        _dense(u),
        *rows,
        _dense(weight.to(torch.float32)),
        _dense(table.to(dtype)),
        _dense(project_bias),
        _dense(gate.to(dtype)),
        _dense(gate_bias),
        tiles.sign,
        tiles.shift,
        blend,
    )[0]


def _dense(x: Tensor) -> Tensor:
    """Contiguous and with its signs in memory: kernels read neither strides nor the negative bit of a view."""
    return x.resolve_neg().contiguous()


def _run_forward(u, past, future, z, weight, table, project_bias, gate, gate_bias, sign, shift, blend):
    """(y, g, alpha) of contiguous rows, on the device that holds them."""
    frames, width = u.shape
    g, alpha = (torch.empty(frames, width, dtype=table.dtype, device=u.device) for _ in range(2))
    y = torch.empty_like(u)
    q = z if future is None else future
    constants = _constants(z.shape[1], width, len(shift), future is not None, blend, table.dtype)

    def launch(tiling: Tiling) -> None:
        _forward_kernel[(triton.cdiv(frames, tiling.frames),)](
            u, past, q, z, weight, table, project_bias, gate, gate_bias, sign, shift, g, alpha, y, frames, **constants,
            BLOCK=tiling.frames, INNER=tiling.inner, num_stages=tiling.stages, num_warps=WARPS,
        )  # fmt: skip

    _launch("forward", launch, u, z, table)
    return y, g, alpha


def _run_backward(grad, u, past, future, z, weight, table, gate, g, alpha, sign, shift, blend):
    """Gradients by u, past, future (empty without it), z, table, project_bias (fp32), gate and gate_bias (fp32)."""
    frames, width = u.shape
    d_logit, d_g = torch.empty_like(g), torch.empty_like(g)
    d_u, d_past, d_z = torch.empty_like(u), torch.empty_like(past), torch.empty_like(z)
    d_future = torch.empty_like(z) if future is not None else z.new_empty(0)
    q, d_q = (z, d_z) if future is None else (future, d_future)
    parts = max(1, min(FRAME_SPLITS, triton.cdiv(frames, 128)))
    d_table = torch.zeros(parts, *table.shape, dtype=torch.float32, device=u.device)
    constants = _constants(z.shape[1], width, len(shift), future is not None, blend, table.dtype)

    def launch(tiling: Tiling) -> None:
        _backward_kernel[(triton.cdiv(frames, tiling.frames),)](
            grad, u, past, q, z, table, gate, sign, shift, g, alpha, d_logit, d_g, d_u, d_past, d_q, d_z, frames, **constants,
            BLOCK=tiling.frames, INNER=tiling.inner, num_stages=tiling.stages, num_warps=WARPS,
        )  # fmt: skip

    def launch_table(tiling: Tiling) -> None:
        _table_gradient_kernel[(table.shape[0], parts)](
            past, q, z, sign, shift, d_g, d_table, frames, triton.cdiv(triton.cdiv(frames, tiling.frames), parts),
            **{k: v for k, v in constants.items() if k != "BLEND"},
            BLOCK=tiling.frames, num_stages=tiling.stages, num_warps=WARPS,
        )  # fmt: skip

    _launch("backward", launch, u, z, table)
    _launch("table_gradient", launch_table, u, z, table)
    # plain matrix products: the library's are the fastest
    d_gate = torch.cat((d_logit.t() @ u.to(table.dtype), d_logit.t() @ g), 1)
    d_project_bias = (d_g.float() * weight.unsqueeze(1)).sum(0)
    return d_u, d_past, d_future, d_z, d_table.sum(0).to(table.dtype), d_project_bias, d_gate, d_logit.float().sum(0)


def _launch(kernel: str, launch: Callable[[Tiling], None], u: Tensor, z: Tensor, table: Tensor) -> None:
    """Launch with the largest tiles that fit; with smaller ones should this Triton need more than the bound says."""
    if not len(u):
        return
    able = tilings(kernel, z.shape[1], u.shape[1], table.dtype.itemsize, u.dtype.itemsize, shared_limit(u.device))
    if not able:
        raise ValueError(
            f"the fused pair mixer of rank {z.shape[1]} and width {u.shape[1]} in {table.dtype} needs more shared memory than "
            f"{u.device} has; use backend='naive'."
        )
    with on_device_of(u):
        for tiling in able:
            try:
                return launch(tiling)
            except triton.runtime.errors.OutOfResources:
                if tiling is able[-1]:
                    raise


class _FusedPairMixer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, past, future, z, weight, table, project_bias, gate, gate_bias, sign, shift, blend):
        inputs = (u, past, future, z, weight, table, project_bias, gate, gate_bias, sign, shift, blend)
        output = _run_forward(*inputs)
        _setup_context(ctx, inputs, output)
        ctx.mark_non_differentiable(*output[1:])
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, *_):
        return _gradients(ctx, grad, _run_backward)


def _setup_context(ctx, inputs, output):
    u, past, future, z, weight, table, project_bias, gate, gate_bias, sign, shift, ctx.blend = inputs
    ctx.save_for_backward(u, past, future, z, weight, table, gate, *output[1:], sign, shift)
    ctx.dtypes = project_bias.dtype, gate_bias.dtype


def _gradients(ctx, grad, run):
    d_u, d_past, d_future, d_z, d_table, d_project_bias, d_gate, d_gate_bias = run(
        _dense(grad), *ctx.saved_tensors, ctx.blend
    )
    biases = d_project_bias.to(ctx.dtypes[0]), d_gate_bias.to(ctx.dtypes[1])
    one_sided = ctx.saved_tensors[2] is None
    return (
        d_u, d_past, None if one_sided else d_future, d_z, None, d_table, biases[0], d_gate, biases[1], None, None, None,
    )  # fmt: skip


# -- the same as opaque operators, for torch.compile(fullgraph=True) of a model around the mixer ------------------------------


@torch.library.custom_op(
    "geomix::fused_pair_mixer",
    mutates_args=(),
    schema="(Tensor u, Tensor past, Tensor? future, Tensor z, Tensor weight, Tensor table, Tensor project_bias, Tensor gate, "
    "Tensor gate_bias, Tensor sign, Tensor shift, bool blend) -> (Tensor, Tensor, Tensor)",
)
def _forward_op(u, past, future, z, weight, table, project_bias, gate, gate_bias, sign, shift, blend):
    return _run_forward(u, past, future, z, weight, table, project_bias, gate, gate_bias, sign, shift, blend)


@_forward_op.register_fake
def _(u, past, future, z, weight, table, project_bias, gate, gate_bias, sign, shift, blend):
    return torch.empty_like(u), *(u.new_empty(u.shape, dtype=table.dtype) for _ in range(2))


@torch.library.custom_op(
    "geomix::fused_pair_mixer_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor u, Tensor past, Tensor? future, Tensor z, Tensor weight, Tensor table, Tensor gate, Tensor g, "
    "Tensor alpha, Tensor sign, Tensor shift, bool blend) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _backward_op(grad, u, past, future, z, weight, table, gate, g, alpha, sign, shift, blend):
    return _run_backward(grad, u, past, future, z, weight, table, gate, g, alpha, sign, shift, blend)


@_backward_op.register_fake
def _(grad, u, past, future, z, weight, table, gate, g, alpha, sign, shift, blend):
    d_future = torch.empty_like(z) if future is not None else z.new_empty(0)
    bias = u.new_empty(u.shape[1], dtype=torch.float32)
    return (
        torch.empty_like(u), torch.empty_like(past), d_future, torch.empty_like(z), torch.empty_like(table), bias,
        torch.empty_like(gate), torch.empty_like(bias),
    )  # fmt: skip


_forward_op.register_autograd(
    lambda ctx, grad, *_: _gradients(ctx, grad, torch.ops.geomix.fused_pair_mixer_backward),
    setup_context=_setup_context,
)


def _constants(rank: int, width: int, tiles: int, two_sided: bool, blend: bool, dtype: torch.dtype) -> dict:
    return {
        "R": rank,
        "D": width,
        "TILES": tiles,
        "BLOCK_R": block(rank),
        "BLOCK_D": block(width),
        "TWO_SIDED": two_sided,
        "BLEND": blend,
        # fp32 operands are multiplied as fp32, not as tf32
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
    }
