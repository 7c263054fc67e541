"""[Zhang2025]'s form of the pair mixing: one pair vector and one projection per offset. It is the definition."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geomix.algebra.pair_product import PairProduct


def paper_form(
    f: PairProduct,
    z: Tensor,
    weight: Tensor,
    mask: Tensor,
    offsets: Sequence[int],
    two_sided: bool = True,
    min_sine: float = 1e-3,
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """g_t = mean over the valid pairs of frame t of W f(earlier, later) / n ([Zhang2025], with t - offset: causal).

    Args:
        f: the pair product, r to K coordinates.
        z: (B, T, r) reduced frames.
        weight: (D, K) projection W.
        mask: (B, T) bool, True where a frame is real; a pair counts only when both of its frames are.
        offsets: distances between partners, in frames, positive.
        two_sided: pair t with t + offset as well; the earlier frame is always the first argument.
        min_sine, eps: see `PairProduct.normaliser`.

    Returns:
        g: (B, T, D), zero where a frame has no valid pair.
        count: (B, T) int64, number of valid pairs.
    """
    frames = z.shape[1]
    z = torch.where(mask.unsqueeze(-1), z, 0.0)  # whatever stands in padding, NaN included, stays there
    g = z.new_zeros(*z.shape[:2], weight.shape[0])
    count = torch.zeros_like(mask, dtype=torch.int64)
    for offset in offsets:
        for shift in (-offset, offset) if two_sided else (-offset,):
            partner = torch.arange(frames, device=z.device) + shift
            inside = (partner >= 0) & (partner < frames)
            partner = partner.clamp(0, frames - 1)
            valid = mask & mask[:, partner] & inside
            other = z.index_select(1, partner)
            earlier, later = (other, z) if shift < 0 else (z, other)
            pair = f(earlier, later) / f.normaliser(earlier, later, min_sine, eps).unsqueeze(-1)
            g = g + (pair * valid.unsqueeze(-1)) @ weight.T
            count = count + valid
    return g / count.clamp_min(1).unsqueeze(-1), count
