"""Pooled projected pair feature of each frame: [Zhang2025]'s form (`naive.py`) and its exact rewrite (`anchored.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from geomix.algebra.pair_product import PairProduct
from geomix.algebra.sign_dial import SignDial
from geomix.kernels.autocast import without_autocast
from geomix.kernels.pair_features.anchored import anchored
from geomix.kernels.pair_features.naive import averaged_form, paper_form
from geomix.kernels.pair_features.pairing import Pairing

FORMS = {"anchored": anchored, "paper": paper_form, "averaged": averaged_form}


def pair_mix(
    f: PairProduct | SignDial,
    z: Tensor,
    weight: Tensor,
    mask: Tensor,
    offsets: Sequence[int],
    *,
    form: str = "anchored",
    **pairing: Any,
) -> tuple[Tensor, Tensor]:
    """Mean (or sum) over the valid pairs of each frame of W f(earlier, later) / n, and the number of those pairs.

    Arguments as in `naive.paper_form`; `offsets` and `pairing` are the fields of a `Pairing`. Computed in at least fp32 whatever
    autocast says; float64 stays float64.

    Returns:
        g: (B, T, D) in that precision, zero where a frame has no valid pair.
        count: (B, T) int64.
    """
    f.check(z)
    dtype = torch.promote_types(torch.promote_types(z.dtype, weight.dtype), torch.float32)
    with without_autocast(z):
        return FORMS[form](f, z.to(dtype), weight.to(dtype), mask, Pairing(tuple(offsets), **pairing))
