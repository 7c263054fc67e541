"""Relative attention for CPUs: a few utterances at a time, so that the scores stay in cache, and no pass to shift them.

The product with the positions is written as (T, T + L - 1) rows by distance. A view with a row stride one shorter reads it by
key, and the product of queries and keys is accumulated straight into that view. In the backward pass the same view takes the
gradient of the scores apart again. The weights are stored for it, before and after dropout; the scores are not.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from geomix.kernels.dropout import keep_mask

SCORES = 2**20  # scores by distance held at once: 4 MB of fp32


def blocked_attend(
    q: Tensor, k: Tensor, v: Tensor, p: Tensor, u: Tensor, w: Tensor, lengths: Tensor, dropout: float = 0.0
) -> Tensor:
    """The same value and gradients as `naive.attend`, up to rounding; with dropout, other draws of the same kind."""
    scale = q.shape[-1] ** -0.5
    return _BlockedAttend.apply(q, k, v, p * scale, u, w, lengths.tolist(), dropout, scale)


class _BlockedAttend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, p, u, w, lengths, dropout, scale):
        batch, frames, heads, _ = q.shape
        queries_u, queries_w = _heads_first(q + u, scale), _heads_first(q + w)
        keys, values = _heads_first(k), _heads_first(v)
        positions = p.permute(1, 0, 2).contiguous()  # (H, 2 T - 1, d)
        out = torch.empty_like(values)
        by_distance, stored, factor = None, [], 1.0
        for part in _parts(batch, heads, frames):
            n, longest = len(lengths[part]), max(lengths[part])
            span = frames + longest - 1
            by_distance = _buffer(by_distance, q, (n * heads, frames, span))
            torch.bmm(_flat(queries_w, part), _repeated(positions[:, :span], n).transpose(1, 2), out=by_distance)
            scores = _by_key(by_distance, longest)
            scores.baddbmm_(_flat(queries_u, part), _flat(keys, part, longest).transpose(1, 2))
            for row, length in enumerate(lengths[part]):
                if length < longest:
                    scores.view(n, heads, frames, longest)[row, :, :, length:] = -torch.inf
            weights = dropped = scores.softmax(-1)
            if dropout:
                keep, factor = keep_mask(weights, dropout)  # the factor is applied to the smaller result
                dropped = weights * keep
            torch.bmm(dropped, _flat(values, part, longest), out=_flat(out, part))
            stored.append((part, longest, weights, dropped))
        ctx.save_for_backward(queries_u, queries_w, keys, values, positions)
        ctx.stored, ctx.scale, ctx.factor = stored, scale, factor
        return (out if factor == 1 else out.mul_(factor)).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        queries_u, queries_w, keys, values, positions = ctx.saved_tensors
        _, heads, frames, _ = queries_u.shape
        grad = _heads_first(grad, ctx.factor)
        grad_u, grad_w = torch.empty_like(queries_u), torch.empty_like(queries_w)
        grad_k, grad_v, grad_p = torch.zeros_like(keys), torch.zeros_like(values), torch.zeros_like(positions)
        by_distance = None
        for part, longest, weights, dropped in ctx.stored:
            n, span = part.stop - part.start, frames + longest - 1
            grad_part = _flat(grad, part)
            grad_v[part, :, :longest] = torch.bmm(dropped.transpose(1, 2), grad_part).unflatten(0, (n, heads))
            # softmax: W (G - rowsum(G W)) with G the gradient of the weights, zero where they were dropped
            product = torch.bmm(grad_part, _flat(values, part, longest).transpose(1, 2)).mul_(dropped)
            by_distance = _buffer(by_distance, grad, (n * heads, frames, span))  # zero outside the view by key
            scores = _by_key(by_distance, longest)
            torch.addcmul(product, weights, product.sum(-1, keepdim=True), value=-1, out=scores)
            torch.bmm(scores, _flat(keys, part, longest), out=_flat(grad_u, part))
            grad_k[part, :, :longest] = torch.bmm(scores.transpose(1, 2), _flat(queries_u, part)).unflatten(
                0, (n, heads)
            )
            torch.bmm(by_distance, _repeated(positions[:, :span], n), out=_flat(grad_w, part))
            of_positions = torch.bmm(by_distance.transpose(1, 2), _flat(queries_w, part))
            grad_p[:, :span] += of_positions if n == 1 else of_positions.unflatten(0, (n, heads)).sum(0)
        grad_u *= ctx.scale
        frames_first = lambda x: x.transpose(1, 2)
        return (
            frames_first(grad_u + grad_w),
            frames_first(grad_k),
            frames_first(grad_v),
            grad_p.transpose(0, 1),
            grad_u.sum((0, 2)),
            grad_w.sum((0, 2)),
            None,
            None,
            None,
        )


def _buffer(buffer: Tensor | None, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The buffer of the part before where it fits, else a zeroed one: fresh memory costs more than the product."""
    return buffer if buffer is not None and buffer.shape == shape else like.new_zeros(shape)


def _flat(x: Tensor, part: slice, longest: int | None = None) -> Tensor:
    """Rows of (B, H, T, d) as (n H, T or longest, d): a view when all of T is asked for."""
    return x[part, :, :longest].flatten(0, 1)


def _repeated(positions: Tensor, n: int) -> Tensor:
    return positions if n == 1 else positions.repeat(n, 1, 1)


def _heads_first(x: Tensor, scale: float | None = None) -> Tensor:
    x = x.transpose(1, 2)
    return x.contiguous() if scale is None else torch.mul(x, scale, out=x.new_empty(x.shape))


def _by_key(by_distance: Tensor, keys: int) -> Tensor:
    """(N, T, T + L - 1) by distance to the (N, T, L) view by key: element (i, j) is place T - 1 - i + j of row i."""
    n, frames, span = by_distance.shape
    return by_distance.as_strided((n, frames, keys), (frames * span, max(span - 1, 1), 1), frames - 1)


def _parts(batch: int, heads: int, frames: int) -> list[slice]:
    size = max(1, SCORES // (heads * frames * (2 * frames - 1)))
    return [slice(start, min(start + size, batch)) for start in range(0, batch, size)]
