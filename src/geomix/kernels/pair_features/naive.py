"""[Zhang2025]'s form of the pair mixing: one pair vector and one projection per offset. It is the definition."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from geomix.algebra.pair_product import PairProduct
from geomix.algebra.sign_dial import SignDial
from geomix.kernels.pair_features.pairing import FUTURE, PAST, Pairing


def paper_form(
    f: PairProduct | SignDial, z: Tensor, weight: Tensor, mask: Tensor, pairing: Pairing
) -> tuple[Tensor, Tensor]:
    """g_t = mean over the valid pairs of frame t of W f(earlier, later) / n ([Zhang2025], with t - offset: causal).

    Args:
        f: the pair product, r to K coordinates.
        z: (B, T, r) reduced frames.
        weight: (D, maps * K) the projections W, side by side.
        mask: (B, T) bool, True where a frame is real; a pair counts only when both of its frames are.
        pairing: which pairs there are, and how they are pooled and projected.

    Returns:
        g: (B, T, D), zero where a frame has no valid pair.
        count: (B, T) int64, number of valid pairs.
    """
    maps = pairing.split(weight)
    g = z.new_zeros(*z.shape[:2], weight.shape[0])
    count = torch.zeros_like(mask, dtype=torch.int64)
    for number, pair, valid in _pairs(f, z, mask, pairing):
        g = g + pair @ maps[number].T
        count = count + valid
    return pairing.pooled(g, count), count


def averaged_form(
    f: PairProduct | SignDial, z: Tensor, weight: Tensor, mask: Tensor, pairing: Pairing
) -> tuple[Tensor, Tensor]:
    """The same function as "average, then project": the pairs' vectors are pooled first and projected once. For `geomix bench`."""
    vectors = [z.new_zeros(*z.shape[:2], f.out_dim) for _ in range(pairing.maps)]
    count = torch.zeros_like(mask, dtype=torch.int64)
    for number, pair, valid in _pairs(f, z, mask, pairing):
        vectors[number] = vectors[number] + pair
        count = count + valid
    return pairing.pooled(torch.cat(vectors, dim=-1), count) @ weight.T, count


def _pairs(f, z: Tensor, mask: Tensor, pairing: Pairing) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For each offset and side: the number of its projection, the pairs' vectors (B, T, K), zero where invalid, and which are valid."""
    frames = z.shape[1]
    z = torch.where(mask.unsqueeze(-1), z, 0.0)  # whatever stands in padding, NaN included, stays there
    for number, offset in enumerate(pairing.offsets):
        for side in pairing.sides:
            partner = torch.arange(frames, device=z.device) + (offset if side == FUTURE else -offset)
            inside = (partner >= 0) & (partner < frames)
            partner = partner.clamp(0, frames - 1)
            valid = mask & mask[:, partner] & inside
            other = z.index_select(1, partner)
            earlier, later = (other, z) if side == PAST else (z, other)
            pair = f(earlier, later)
            if pairing.normalise:
                pair = pair / f.normaliser(earlier, later, pairing.min_sine, pairing.eps).unsqueeze(-1)
            factor = valid.unsqueeze(-1) * pairing.side_weights[side]
            yield pairing.map_of(side, number), pair * factor.to(pair.dtype), valid
