"""The whole pair mixer, readable: pair features (`kernels.pair_features`), bias, dropout and gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from geomix.algebra.pair_product import PairProduct
from geomix.algebra.sign_dial import SignDial
from geomix.kernels.dropout import dropout as dropped
from geomix.kernels.pair_features import pair_mix


def pair_mixer(
    f: PairProduct | SignDial,
    u: Tensor,
    z: Tensor,
    project: Tensor,
    project_bias: Tensor,
    gate: Tensor | None,
    gate_bias: Tensor | None,
    mask: Tensor,
    offsets: Sequence[int],
    *,
    gating: str = "article",
    blend: bool = False,
    empty: str = "zero",
    dropout: float = 0.0,
    form: str = "anchored",
    **pairing: Any,
) -> Tensor:
    """What the gate makes of the frames u and the mixture g, where alpha = sigmoid(W_gate [u; g] + b):

    | gating | value |
    | --- | --- |
    | article | (1 - alpha) (g - u), or with `blend` alpha u + (1 - alpha) g |
    | add | (1 - alpha) g |
    | none | g; there is no gate, whose weights are None |

    g is the pooled projected pair feature of each frame plus the projection's bias, which a frame without a valid pair gets only
    with empty="bias"; each of its numbers is zeroed with probability `dropout`. Shapes: u (B, T, D), z (B, T, r), project
    (D, maps * K), project_bias (D,), gate (D, 2 D), gate_bias (D,), mask (B, T) bool -> (B, T, D). `offsets` and `pairing` are
    the fields of a `Pairing`.
    """
    g = mixture(f, z, project, project_bias, mask, offsets, empty=empty, form=form, **pairing).to(u.dtype)
    g = dropped(g, dropout)
    if gating == "none":
        return g
    alpha = openness(u, g, gate, gate_bias)
    if gating == "add":
        return (1 - alpha) * g
    return torch.lerp(g, u, alpha.to(g.dtype)) if blend else (1 - alpha) * (g - u)


def mixture(
    f: PairProduct | SignDial,
    z: Tensor,
    project: Tensor,
    project_bias: Tensor,
    mask: Tensor,
    offsets: Sequence[int],
    *,
    empty: str = "zero",
    **options: Any,
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
