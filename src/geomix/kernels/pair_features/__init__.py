"""Mean projected pair feature of each frame: [Zhang2025]'s form (`naive.py`) and its exact rewrite (`anchored.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geomix.algebra.pair_product import PairProduct
from geomix.kernels.autocast import without_autocast
from geomix.kernels.pair_features.anchored import anchored
from geomix.kernels.pair_features.naive import paper_form

FORMS = {"anchored": anchored, "paper": paper_form}


def pair_mix(
    f: PairProduct,
    z: Tensor,
    weight: Tensor,
    mask: Tensor,
    offsets: Sequence[int],
    *,
    two_sided: bool = True,
    min_sine: float = 1e-3,
    eps: float = 1e-6,
    form: str = "anchored",
) -> tuple[Tensor, Tensor]:
    """Mean over the valid pairs of each frame of W f(earlier, later) / n, and the number of those pairs.

    Arguments as in `naive.paper_form`. Computed in at least fp32 whatever autocast says; float64 stays float64.

    Returns:
        g: (B, T, D) in that precision, zero where a frame has no valid pair.
        count: (B, T) int64.
    """
    f.check(z)
    dtype = torch.promote_types(torch.promote_types(z.dtype, weight.dtype), torch.float32)
    with without_autocast(z):
        return FORMS[form](f, z.to(dtype), weight.to(dtype), mask, tuple(offsets), two_sided, min_sine, eps)
