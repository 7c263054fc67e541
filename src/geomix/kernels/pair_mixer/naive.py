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
    options = {"two_sided": two_sided, "min_sine": min_sine, "eps": eps, "form": form}
    g = mixture(f, z, project, project_bias, mask, offsets, empty=empty, **options).to(u.dtype)
    alpha = openness(u, g, gate, gate_bias)
    return torch.lerp(g, u, alpha.to(g.dtype)) if blend else (1 - alpha) * (g - u)


def mixture(
    f: PairProduct,
    z: Tensor,
    project: Tensor,
    project_bias: Tensor,
    mask: Tensor,
    offsets: Sequence[int],
    *,
    empty: str = "zero",
    **options,
) -> Tensor:
    """g (B, T, D), in at least fp32; `options` are those of `pair_features.pair_mix`."""
    g, count = pair_mix(f, z, project, mask, offsets, **options)
    if empty == "bias":
        return g + project_bias
    return torch.addcmul(g, (count > 0).unsqueeze(-1).to(g.dtype), project_bias.to(g.dtype))


def openness(u: Tensor, g: Tensor, gate: Tensor, gate_bias: Tensor) -> Tensor:
    """alpha = sigmoid(W_gate [u; g] + b), (B, T, D), without forming [u; g]."""
    width = u.shape[-1]
    return torch.sigmoid(linear(u, gate[:, :width], gate_bias) + linear(g, gate[:, width:]))
