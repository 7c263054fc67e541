"""Relative attention for CPUs: a few utterances at a time, so that the scores stay in cache, and no pass to shift them.

The product with the positions is written as (T, T + L - 1) rows by distance. A view with a row stride one shorter reads it by
key, and the product of queries and keys is accumulated straight into that view. In the backward pass the same view takes the
gradient of the scores apart again. The weights are stored for it, the scores are not.
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
        batch, frames, heads, d = q.shape
        queries_u, queries_w = _heads_first(q + u, scale), _heads_first(q + w)
        keys, values = _heads_first(k), _heads_first(v)
        positions = p.permute(1, 0, 2).contiguous()  # (H, 2 T - 1, d)
        out = torch.empty_like(values)
        stored = []
        for part in _parts(batch, heads, frames):
            longest = max(lengths[part])
            n, span = len(lengths[part]), frames + longest - 1
            by_distance = q.new_empty(n * heads, frames, span)
            reach = positions[:, :span].repeat(n, 1, 1).transpose(1, 2)
            torch.bmm(queries_w[part].flatten(0, 1), reach, out=by_distance)
            scores = _by_key(by_distance, longest)
            scores.baddbmm_(queries_u[part].flatten(0, 1), keys[part, :, :longest].flatten(0, 1).transpose(1, 2))
            for row, length in enumerate(lengths[part]):
                if length < longest:
                    scores.view(n, heads, frames, longest)[row, :, :, length:] = -torch.inf
            weights = scores.softmax(-1)
            keep, factor = keep_mask(weights, dropout) if dropout else (None, 1.0)
            dropped = weights if keep is None else (weights * keep).mul_(factor)
            torch.bmm(dropped, values[part, :, :longest].flatten(0, 1), out=out[part].flatten(0, 1))
            stored.append((part, longest, weights, keep, factor))
        ctx.save_for_backward(queries_u, queries_w, keys, values, positions)
        ctx.stored, ctx.scale = stored, scale
        return out.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        queries_u, queries_w, keys, values, positions = ctx.saved_tensors
        _, heads, frames, _ = queries_u.shape
        grad = _heads_first(grad)
        grad_u, grad_w = torch.empty_like(queries_u), torch.empty_like(queries_w)
        grad_k, grad_v = torch.zeros_like(keys), torch.zeros_like(values)
        grad_p = torch.zeros_like(positions)
        for part, longest, weights, keep, factor in ctx.stored:
            flat = lambda x: x[part].flatten(0, 1)  # noqa: B023
            n, span = part.stop - part.start, frames + longest - 1
            dropped = weights if keep is None else (weights * keep).mul_(factor)
            grad_v[part, :, :longest] = (dropped.transpose(1, 2) @ flat(grad)).unflatten(0, (n, heads))
            grad_weights = flat(grad) @ values[part, :, :longest].flatten(0, 1).transpose(1, 2)
            if keep is not None:
                grad_weights.mul_(keep).mul_(factor)
            by_distance = grad.new_zeros(n * heads, frames, span)
            scores = _by_key(by_distance, longest)
            scores.copy_(torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype))
            torch.bmm(scores, keys[part, :, :longest].flatten(0, 1), out=flat(grad_u))
            grad_k[part, :, :longest] = (scores.transpose(1, 2) @ flat(queries_u)).unflatten(0, (n, heads))
            torch.bmm(by_distance, positions[:, :span].repeat(n, 1, 1), out=flat(grad_w))
            grad_p[:, :span] += (by_distance.transpose(1, 2) @ flat(queries_w)).unflatten(0, (n, heads)).sum(0)
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
