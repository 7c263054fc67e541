"""`pair_features.anchored.anchors` in Triton: partners divided by their pair's normaliser and averaged, one kernel each way.

A program holds a tile of frames; for every offset it reads the partners, takes the norm in closed form in registers and adds
up. The backward kernel visits the same pairs from both of their ends, so that each frame's gradient is written once, without
atomics. fp32 throughout.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from geomix.algebra.constants import constant
from geomix.algebra.pair_product import SMALL, PairProduct
from geomix.kernels.launch import check_memory, on_device_of
from geomix.kernels.pair_mixer.tiling import block

FRAMES = 64  # frames of one program
WEDGE, SYMMETRIC, SIGNED, GEOMETRIC = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)


@constant
def norm_kind(f: PairProduct) -> int | None:
    """Which closed-form norm a product has: 0 wedge, 1 symmetric, 2 random signs, 3 scalar and wedge; None for others.

    None too where `PairProduct.sq_norm` sums squares: below rank 8 but for scalar and wedge.
    """
    terms = f.pair_terms
    if terms is None:
        return None
    if terms.dot is not None:
        return 3 if (terms.sign < 0).all() else None
    if f.in_dim < SMALL:
        return None
    return 0 if (terms.sign < 0).all() else 1 if (terms.sign > 0).all() else 2


def fused_anchors(
    f: PairProduct, z: Tensor, mask: Tensor, offsets: tuple[int, ...], two_sided: bool, min_sine: float, eps: float
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Value and gradient of `anchors`, argument for argument; z (B, T, r) fp32, f with a `norm_kind`."""
    check_memory("the fused pair mixer", z, mask)
    z = torch.where(mask.unsqueeze(-1), z, 0.0).resolve_neg().contiguous()
    places, signs = _constants(f, offsets, z.device)
    apply = torch.ops.geomix.fused_anchors if torch.compiler.is_compiling() else _FusedAnchors.apply
    past, future, count = apply(
        z, mask.contiguous(), places, signs, norm_kind(f), two_sided, float(min_sine), float(eps)
    )
    return past, future if two_sided else None, z, count


@constant
def _constants(f: PairProduct, offsets: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    return (
        torch.tensor(offsets, dtype=torch.int32, device=device),
        torch.as_tensor(f.sign_table, dtype=torch.float32, device=device),
    )


def _options(z: Tensor, offsets: Tensor, kind: int, two_sided: bool, min_sine: float, eps: float) -> dict:
    return {
        "R": z.shape[2],
        "BLOCK_R": block(z.shape[2]),
        "OFFSETS": len(offsets),
        "BLOCK": frames_of_a_program(z.shape[2]),
        "KIND": kind,
        "TWO_SIDED": two_sided,
        "MIN_SINE": min_sine,
        "EPS": eps,
    }


def frames_of_a_program(rank: int) -> int:
    """FRAMES, or fewer at large ranks: only random signs use shared memory, for the sign table and a tile of products."""
    return FRAMES if block(rank) <= 32 else 32 if block(rank) <= 64 else 16


def _run_forward(z, mask, offsets, signs, kind, two_sided, min_sine, eps):
    past, future = torch.empty_like(z), torch.empty_like(z)
    count = torch.empty(mask.shape, dtype=torch.int64, device=z.device)
    options, frames = _options(z, offsets, kind, two_sided, min_sine, eps), mask.numel()
    if frames:
        with on_device_of(z):
            _forward_kernel[(triton.cdiv(frames, options["BLOCK"]),)](
                z, mask, offsets, signs, past, future, count, frames, z.shape[1], **options
            )
    return past, future, count


def _run_backward(z, mask, offsets, signs, count, d_past, d_future, kind, two_sided, min_sine, eps):
    d_z = torch.empty_like(z)
    options, frames = _options(z, offsets, kind, two_sided, min_sine, eps), mask.numel()
    if frames:
        with on_device_of(z):
            _backward_kernel[(triton.cdiv(frames, options["BLOCK"]),)](
                z, mask, offsets, signs, count, d_past.resolve_neg().contiguous(), d_future.resolve_neg().contiguous(), d_z, frames,
                z.shape[1], **options,
            )  # fmt: skip
    return d_z


class _FusedAnchors(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *inputs):
        output = _run_forward(*inputs)
        _setup_context(ctx, inputs, output)
        ctx.mark_non_differentiable(output[2])
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, d_past, d_future, _):
        return _run_backward(*ctx.saved_tensors, d_past, d_future, *ctx.options), *[None] * 7


def _setup_context(ctx, inputs, output):
    z, mask, offsets, signs, *ctx.options = inputs
    ctx.save_for_backward(z, mask, offsets, signs, output[2])


@torch.library.custom_op("geomix::fused_anchors", mutates_args=())
def _forward_op(
    z: Tensor, mask: Tensor, offsets: Tensor, signs: Tensor, kind: int, two_sided: bool, min_sine: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _run_forward(z, mask, offsets, signs, kind, two_sided, min_sine, eps)


@_forward_op.register_fake
def _(z, mask, offsets, signs, kind, two_sided, min_sine, eps):
    return torch.empty_like(z), torch.empty_like(z), z.new_empty(mask.shape, dtype=torch.int64)


@torch.library.custom_op("geomix::fused_anchors_backward", mutates_args=())
def _backward_op(
    z: Tensor, mask: Tensor, offsets: Tensor, signs: Tensor, count: Tensor, d_past: Tensor, d_future: Tensor, kind: int,
    two_sided: bool, min_sine: float, eps: float,
) -> Tensor:  # fmt: skip
    return _run_backward(z, mask, offsets, signs, count, d_past, d_future, kind, two_sided, min_sine, eps)


@_backward_op.register_fake
def _(z, mask, offsets, signs, count, d_past, d_future, kind, two_sided, min_sine, eps):
    return torch.empty_like(z)


def _op_backward(ctx, d_past, d_future, _):
    d_z = torch.ops.geomix.fused_anchors_backward(*ctx.saved_tensors, d_past, d_future, *ctx.options)
    return d_z, *[None] * 7


_forward_op.register_autograd(_op_backward, setup_context=_setup_context)


@triton.jit
def _rows(pointer, t, c, real, R: tl.constexpr):
    return tl.load(pointer + t[:, None] * R + c[None, :], mask=real[:, None] & (c < R)[None, :], other=0.0)


@triton.jit
def _signs(signs, c, R: tl.constexpr):
    """The (r, r) sign table, zero diagonal, padded with zeros."""
    return tl.load(signs + c[:, None] * R + c[None, :], mask=(c < R)[:, None] & (c < R)[None, :], other=0.0)


@triton.jit
def _larger(a, b):
    """The maximum; NaN where one is NaN, which Triton's own would drop."""
    return tl.where(a != a, a, tl.where(b > a, b, tl.where(b != b, b, a)))


@triton.jit
def _sq_norm(a, b, table, A, B, KIND: tl.constexpr):
    """|f(a, b)|^2 by the closed forms of PairProduct.sq_norm."""
    if KIND == GEOMETRIC:
        m = A * B
    else:
        u = a * b
        c = tl.sum(u, 1)
        if KIND == WEDGE:
            rest = b - (c / tl.where(A > 0, A, 1.0))[:, None] * a
            m = A * tl.sum(rest * rest, 1)
        elif KIND == SYMMETRIC:
            m = A * B + c * c - 2 * tl.sum(u * u, 1)
        else:
            m = A * B + tl.sum(u * (tl.dot(u, table, input_precision="ieee") - u), 1)
    return m


@triton.jit
def _inverse_normaliser(a, b, table, KIND: tl.constexpr, MIN_SINE: tl.constexpr, EPS: tl.constexpr):
    """1 / max(|f(a, b)|, min_sine |a| |b|, eps)."""
    A, B = tl.sum(a * a, 1), tl.sum(b * b, 1)
    m = _larger(_sq_norm(a, b, table, A, B, KIND), MIN_SINE * MIN_SINE * A * B)
    return 1 / tl.sqrt(_larger(m, EPS * EPS))


@triton.jit
def _slope(a, b, table, KIND: tl.constexpr, MIN_SINE: tl.constexpr, EPS: tl.constexpr, FIRST: tl.constexpr):
    """(1 / n, its derivative by a if FIRST else by b); the formulas are those of |f|^2, residuals free of cancellation."""
    A, B = tl.sum(a * a, 1), tl.sum(b * b, 1)
    m = _sq_norm(a, b, table, A, B, KIND)
    floor = MIN_SINE * MIN_SINE * A * B
    square = _larger(_larger(m, floor), EPS * EPS)
    inverse = 1 / tl.sqrt(square)
    # x is the argument differentiated, y the other one, Y its square
    if FIRST:
        x, y, Y = a, b, B
    else:
        x, y, Y = b, a, A
    plain = 2 * Y[:, None] * x  # derivative of |a|^2 |b|^2
    if KIND == GEOMETRIC:
        of_m = plain
    else:
        u = a * b
        c = tl.sum(u, 1)
        if KIND == WEDGE:
            of_m = 2 * Y[:, None] * (x - (c / tl.where(Y > 0, Y, 1.0))[:, None] * y)
        elif KIND == SYMMETRIC:
            of_m = plain + 2 * (c[:, None] - 2 * u) * y
        else:
            of_m = plain + 2 * (tl.dot(u, table, input_precision="ieee") - u) * y
    derivative = tl.where((m >= floor)[:, None], of_m, MIN_SINE * MIN_SINE * plain)
    factor = tl.where(_larger(m, floor) > EPS * EPS, -0.5 * inverse * inverse * inverse, 0.0)
    return inverse, factor[:, None] * derivative


@triton.jit(do_not_specialize=["frames", "length"])
def _forward_kernel(
    z, mask, offsets, signs, past, future, count, frames, length,
    R: tl.constexpr, BLOCK_R: tl.constexpr, OFFSETS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
    TWO_SIDED: tl.constexpr, MIN_SINE: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, BLOCK_R)
    real = t < frames
    here = real & (tl.load(mask + t, mask=real, other=0) != 0)
    position = t % length
    z_t = _rows(z, t, c, real, R)
    table = _signs(signs, c, R)
    before, after = tl.zeros((BLOCK, BLOCK_R), tl.float32), tl.zeros((BLOCK, BLOCK_R), tl.float32)
    pairs = tl.zeros((BLOCK,), tl.int64)
    for k in range(OFFSETS):
        step = tl.load(offsets + k)
        valid = here & (position >= step)
        valid = valid & (tl.load(mask + t - step, mask=valid, other=0) != 0)
        other = _rows(z, t - step, c, valid, R)
        inverse = _inverse_normaliser(other, z_t, table, KIND, MIN_SINE, EPS)
        before += tl.where(valid, inverse, 0.0)[:, None] * other
        pairs += valid.to(tl.int64)
        if TWO_SIDED:
            valid = here & (position + step < length)
            valid = valid & (tl.load(mask + t + step, mask=valid, other=0) != 0)
            other = _rows(z, t + step, c, valid, R)
            inverse = _inverse_normaliser(z_t, other, table, KIND, MIN_SINE, EPS)
            after += tl.where(valid, inverse, 0.0)[:, None] * other
            pairs += valid.to(tl.int64)
    share = (1 / tl.maximum(pairs, 1).to(tl.float32))[:, None]
    at = t[:, None] * R + c[None, :]
    inside = real[:, None] & (c < R)[None, :]
    tl.store(past + at, before * share, mask=inside)
    tl.store(future + at, after * share, mask=inside)
    tl.store(count + t, pairs, mask=real)


@triton.jit(do_not_specialize=["frames", "length"])
def _backward_kernel(
    z, mask, offsets, signs, count, d_past, d_future, d_z, frames, length,
    R: tl.constexpr, BLOCK_R: tl.constexpr, OFFSETS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
    TWO_SIDED: tl.constexpr, MIN_SINE: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Frame t is the later one of (t - step, t) and the earlier one of (t, t + step); both pairs' 1 / n =: s depend on z_t.

    past_t = sum s z_{t-step} / count_t and future_t = sum s z_{t+step} / count_t, hence z_t receives s d_past_{t+step} and
    s d_future_{t-step} as a partner, and d_s times the slope of s in both roles.
    """
    t = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, BLOCK_R)
    real = t < frames
    here = real & (tl.load(mask + t, mask=real, other=0) != 0)
    position = t % length
    z_t = _rows(z, t, c, real, R)
    table = _signs(signs, c, R)
    share = (1 / tl.maximum(tl.load(count + t, mask=real, other=1), 1).to(tl.float32))[:, None]
    into_past = _rows(d_past, t, c, real, R) * share
    if TWO_SIDED:
        into_future = _rows(d_future, t, c, real, R) * share
    total = tl.zeros((BLOCK, BLOCK_R), tl.float32)
    for k in range(OFFSETS):
        step = tl.load(offsets + k)
        # z_t as the later frame
        valid = here & (position >= step)
        valid = valid & (tl.load(mask + t - step, mask=valid, other=0) != 0)
        other = _rows(z, t - step, c, valid, R)
        inverse, slope = _slope(other, z_t, table, KIND, MIN_SINE, EPS, False)
        d_s = tl.sum(into_past * other, 1)
        if TWO_SIDED:
            scale = 1 / tl.maximum(tl.load(count + t - step, mask=valid, other=1), 1).to(tl.float32)
            theirs = _rows(d_future, t - step, c, valid, R) * scale[:, None]
            d_s += tl.sum(theirs * z_t, 1)
            total += tl.where(valid, inverse, 0.0)[:, None] * theirs
        total += tl.where(valid, d_s, 0.0)[:, None] * slope
        # z_t as the earlier frame
        valid = here & (position + step < length)
        valid = valid & (tl.load(mask + t + step, mask=valid, other=0) != 0)
        other = _rows(z, t + step, c, valid, R)
        inverse, slope = _slope(z_t, other, table, KIND, MIN_SINE, EPS, True)
        scale = 1 / tl.maximum(tl.load(count + t + step, mask=valid, other=1), 1).to(tl.float32)
        theirs = _rows(d_past, t + step, c, valid, R) * scale[:, None]
        d_s = tl.sum(theirs * z_t, 1)
        if TWO_SIDED:
            d_s += tl.sum(into_future * other, 1)
        total += tl.where(valid, inverse, 0.0)[:, None] * theirs + tl.where(valid, d_s, 0.0)[:, None] * slope
    tl.store(d_z + t[:, None] * R + c[None, :], total, mask=real[:, None] & (c < R)[None, :])
