"""Blocked self-attention with Shaw's relative positions: the linear-time baseline, and the attention of Granite Speech.

Time is cut into windows of `context` frames that do not overlap; attention is block-diagonal over them. Inside a window the
score of query i and key j is (q_i . k_j + q_i . e_(i-j)) / sqrt(d), with a learned vector e for each distance
([Shaw2018]; GraniteSpeechConformerAttention of transformers 4.57.1).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geomix.errors import UserError


def blocked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    *,
    context: int,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention inside windows of `context` frames.

    q, k, v: (batch, time, heads, d). positions: (2 * context - 1, d), row i - j + context - 1 is the vector of a query at i and
    a key at j of the same window. mask: (batch, time) bool, True for real frames, which alone are attended to; what stands at
    the others never matters as long as it is finite. dropout: on the attention weights. Returns (batch, time, heads * d).
    """
    time = q.shape[1]
    whole = time // context * context  # the last, shorter window is attended to by itself: it needs no padding
    parts = []
    for start, end, size in ((0, whole, context), (whole, time, time - whole)):
        if start < end:
            part = None if mask is None else mask[:, start:end]
            reach = positions[context - size : context + size - 1]
            parts.append(_windows(q[:, start:end], k[:, start:end], v[:, start:end], reach, size, part, dropout))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _windows(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, size: int, mask: Tensor | None, dropout: float
) -> Tensor:
    """As `blocked_attention` with a time that is a multiple of the window's size.

    The position scores need no (size, size, d) tensor: q times the 2 * size - 1 vectors is one matrix product, and with the
    vectors in descending order the score of (i, j) lies at column (size - 1 - i) + j of row i, which a strided view reads in
    place.
    """
    batch, time, heads, width = q.shape
    windows, columns = batch * (time // size), 2 * size - 1
    q, k, v = (x.reshape(windows, size, heads, width) for x in (q * width**-0.5, k, v))
    by_distance = torch.matmul(q, positions.flip(0).t())  # (windows, size, heads, columns)
    shaw = by_distance.as_strided(
        (windows, heads, size, size), (size * heads * columns, columns, heads * columns - 1, 1), size - 1
    )
    scores = torch.matmul(q.transpose(1, 2), k.permute(0, 2, 3, 1)).add_(shaw)
    if mask is not None:
        # a finite value: in a window without any real frame -inf would give NaN, which spreads through 0 * NaN
        scores = scores.masked_fill(~mask.reshape(windows, 1, 1, size), torch.finfo(scores.dtype).min)
    weights = F.dropout(scores.softmax(dim=-1), dropout, dropout > 0)
    return torch.matmul(weights, v.transpose(1, 2)).transpose(1, 2).reshape(batch, time, heads * width)


def blocked_attention_naive(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, *, context: int, mask: Tensor | None = None
) -> Tensor:
    """The definition of `blocked_attention`, one query at a time, in any dtype."""
    batch, time, heads, width = q.shape
    out = torch.zeros_like(q)
    for b in range(batch):
        for i in range(time):
            start = i // context * context
            keys = [j for j in range(start, min(start + context, time)) if mask is None or mask[b, j]]
            if not keys:
                continue
            vectors = positions[torch.tensor([i - j + context - 1 for j in keys])]
            for h in range(heads):
                scores = (k[b, keys, h] @ q[b, i, h] + vectors @ q[b, i, h]) / width**0.5
                out[b, i, h] = scores.softmax(0) @ v[b, keys, h]
    return out.reshape(batch, time, heads * width)


class BlockedAttention(nn.Module):
    """Blocked attention as a mixer: `forward(x, frames) -> y`, both (batch, time, width).

    Cost grows with time times `context`. Projections as in Granite Speech: no bias on q, k, v, a bias on the output. The
    default context is 4 s at 40 ms a frame (Granite: 200 frames of 20 ms). `dropout` acts on the attention weights.

    Raises UserError when `heads` does not divide `width` or the context is not positive.
    """

    def __init__(self, width: int, heads: int = 4, context: int = 100, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"blocked_attention: heads {heads} does not divide width {width}: choose a divisor")
        if context < 1:
            raise UserError(f"blocked_attention: context {context} is not positive: give it in frames")
        self.heads, self.context, self.dropout = heads, context, dropout
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_kv = nn.Linear(width, 2 * width, bias=False)
        self.to_out = nn.Linear(width, width)
        # only distances that occur inside a window have a vector: no parameter is dead
        self.positions = nn.Parameter(torch.empty(2 * context - 1, width // heads).normal_(std=0.02))

    def forward(self, x: Tensor, frames) -> Tensor:
        """x: (batch, time, width); frames.mask: (batch, time) bool, True = real."""
        frames.check(x)
        split = lambda y: y.unflatten(-1, (self.heads, -1))
        k, v = self.to_kv(x).chunk(2, dim=-1)
        y = blocked_attention(
            split(self.to_q(x)), split(k), split(v), self.positions.to(x.dtype), context=self.context, mask=frames.mask,
            dropout=self.dropout if self.training else 0.0,
        )  # fmt: skip
        return self.to_out(y)
