"""Attention with relative positions: the definition (`naive.py`) and a form that stays in a CPU's cache (`blocked.py`)."""

from __future__ import annotations

import torch
from torch import Tensor

from geomix.kernels.relative_attention.blocked import blocked_attend
from geomix.kernels.relative_attention.naive import attend, rel_shift

__all__ = ["attend", "blocked_attend", "rel_shift", "relative_attend"]


def relative_attend(
    q: Tensor, k: Tensor, v: Tensor, p: Tensor, u: Tensor, w: Tensor, lengths: Tensor, dropout: float = 0.0
) -> Tensor:
    """softmax(((q + u) k^T + shifted (q + w) p^T) / sqrt(d)) v over the real keys of each utterance.

    Args:
        q, k, v: (B, T, H, d) queries, keys, values.
        p: (2 T - 1, H, d) encodings of the distances T - 1 down to -(T - 1), query minus key.
        u, w: (H, d) content and position bias.
        lengths: (B,) number of real frames, which are the keys.
        dropout: probability of dropping an attention weight.

    Returns:
        (B, T, H, d).
    """
    plain = (
        q.device.type != "cpu"
        or q.dtype not in (torch.float32, torch.float64)
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()  # the blocked form reads the lengths, which a graph and a fake tensor do not know
        or type(lengths) is not Tensor
    )
    return (attend if plain else blocked_attend)(q, k, v, p, u, w, lengths, dropout)
