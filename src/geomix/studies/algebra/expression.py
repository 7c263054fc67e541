"""What an attention can express: ranks of the score form and of the value map of one head, whatever numbers it is given."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geomix.mixers.multivector_attention import MultivectorAttention


@torch.no_grad()
def head_ranks(attention: nn.Module, width: int) -> tuple[int, int]:
    """(rank of M in the score x'My, rank of the value map x -> W_out W_v x) of the first head, at its present weights.

    Ranks of generic weights are the largest that a map can have; random first weights are generic.
    """
    multivectors = isinstance(attention, MultivectorAttention)
    sizes = attention.widths if multivectors else (width, width, width)
    q, k, v = (part[: len(part) // attention.heads] for part in _matrix(attention.qkv, width).split(sizes))
    if multivectors:
        scale = attention.metric * torch.exp(-attention.log_temperature.detach())[:, attention.group]
        q = q * scale[0].repeat(len(q) // len(scale[0]))[:, None]
    out = _matrix(attention.out, sizes[2])[:, : len(v)]
    return tuple(int(torch.linalg.matrix_rank(m.double(), rtol=1e-6)) for m in (q.T @ k, out @ v))


def _matrix(layer: nn.Module, inputs: int) -> Tensor:
    """(outputs, inputs) matrix of an affine map."""
    return (layer(torch.eye(inputs)) - layer(torch.zeros(1, inputs))).T
