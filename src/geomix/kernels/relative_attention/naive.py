"""Attention with relative positions, as it is defined: Transformer-XL ([Dai2019], section 3.3), ESPnet's `latest`."""

from __future__ import annotations

import torch
from torch import Tensor

from geomix.kernels.dropout import dropout as drop


def attend(
    q: Tensor, k: Tensor, v: Tensor, p: Tensor, u: Tensor, w: Tensor, lengths: Tensor, dropout: float = 0.0
) -> Tensor:
    """See `relative_attend`."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, H, T, d)
    content = (q + u.unsqueeze(1)) @ k.transpose(-1, -2)
    position = (q + w.unsqueeze(1)) @ p.permute(1, 2, 0)
    scores = (content + rel_shift(position)) * q.shape[-1] ** -0.5
    real = torch.arange(k.shape[2], device=k.device) < lengths.to(k.device).unsqueeze(1)
    scores = scores.masked_fill(~real[:, None, None, :], torch.finfo(scores.dtype).min)
    return (drop(scores.softmax(-1), dropout) @ v).transpose(1, 2)


def rel_shift(scores: Tensor) -> Tensor:
    """(..., T, 2 T - 1) scores by distance, T - 1 first, to (..., T, T) scores by key: out[i, j] = scores[i, T - 1 - i + j].

    A view: row i of the result starts T - 1 - i places into row i of the argument, 2 T - 2 places after the row before.
    """
    length = scores.shape[-2]
    if torch.compiler.is_compiling():  # a graph knows no storage offset: the same view by slices
        flat = scores.flatten(-2)[..., length - 1 : length - 1 + length * (2 * length - 2)]
        return scores if length == 1 else flat.unflatten(-1, (length, 2 * length - 2))[..., :length]
    scores = scores.contiguous()
    strides = (*scores.stride()[:-2], max(2 * length - 2, 1), 1)
    return scores.as_strided((*scores.shape[:-1], length), strides, scores.storage_offset() + length - 1)
