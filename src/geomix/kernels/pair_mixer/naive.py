"""The whole pair mixer, readable: pair features (`kernels.pair_features`), bias, gate and blend."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from geomix.algebra.pair_product import PairProduct
from geomix.kernels.pair_features import pair_mix


def pair_mixer(
    f: PairProduct,
    u: Tensor,
    z: Tensor,
    project: Tensor,
    project_bias: Tensor,
    gate: Tensor,
    gate_bias: Tensor,
    mask: Tensor,
    offsets: Sequence[int],
    *,
    two_sided: bool = True,
    blend: bool = False,
    empty: str = "zero",
    min_sine: float = 1e-3,
    eps: float = 1e-6,
    form: str = "anchored",
) -> Tensor:
    """(1 - alpha) (g - u), or with `blend` alpha u + (1 - alpha) g, where alpha = sigmoid(W_gate [u; g] + b).

    g is the mean projected pair feature of each frame plus the projection's bias, which a frame without a valid pair gets only
    with empty="bias". Shapes: u (B, T, D), z (B, T, r), project (D, K), project_bias (D,), gate (D, 2 D), gate_bias (D,),
    mask (B, T) bool -> (B, T, D).
    """
    width = u.shape[-1]
    g, count = pair_mix(f, z, project, mask, offsets, two_sided=two_sided, min_sine=min_sine, eps=eps, form=form)
    weight = 1.0 if empty == "bias" else (count > 0).unsqueeze(-1).to(g.dtype)
    g = (g + weight * project_bias).to(u.dtype)
    alpha = torch.sigmoid(linear(u, gate[:, :width], gate_bias) + linear(g, gate[:, width:]))
    return torch.lerp(g, u, alpha) if blend else (1 - alpha) * (g - u)
