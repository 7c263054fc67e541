"""The exact rewrite of [Zhang2025]'s form: one pair vector per frame instead of one per offset.

f is linear in its first argument and all pairs of frame t share z_t, so the mean moves inside (reference: [Tested2026];
proof in docs/math.md):

    mean_d W f(z_{t-d}, z_t) / n(t-d, t)  =  W f(past_t, z_t),       past_t = mean_d z_{t-d} / n(t-d, t)

and, for pairs with later frames, W f(z_t, z_{t+d}) / n = W f.swap()(z_{t+d}, z_t) / n. Only the norms are taken pair by pair,
in closed form. The equality holds for every bilinear f; the projection has a fast path for products of `pair_terms`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from geomix.algebra.constants import constant
from geomix.algebra.pair_product import PairProduct
from geomix.algebra.sign_dial import SignDial
from geomix.kernels.pair_features.pairing import FUTURE, PAST, Pairing

CHUNK = 1024  # frames whose pair vectors are held at once on a CPU: 2 MB at r = 32, which stays in cache


class Anchors(NamedTuple):
    """What the pairs of each frame have in common, and its partners.

    by_map : for each projection the pooled partners (B, T, r) of the past and of the future, None where it serves no such pair
    z : (B, T, r) with padded frames zeroed; count : (B, T) int64, number of valid pairs
    """

    by_map: tuple[tuple[Tensor | None, Tensor | None], ...]
    z: Tensor
    count: Tensor


def anchored(
    f: PairProduct | SignDial, z: Tensor, weight: Tensor, mask: Tensor, pairing: Pairing
) -> tuple[Tensor, Tensor]:
    """The same value and gradients as `naive.paper_form`, argument for argument, up to rounding."""
    found = anchors(f, z, mask, pairing)
    g = None
    for (past, future), part in zip(found.by_map, pairing.split(weight), strict=True):
        if past is not None or future is not None:
            projected = project(f, past, future, found.z, part)
            g = projected if g is None else g + projected
    return z.new_zeros(*z.shape[:2], weight.shape[0]) if g is None else g, found.count


def anchors(f: PairProduct | SignDial, z: Tensor, mask: Tensor, pairing: Pairing) -> Anchors:
    """Means (or sums) of the partners of each frame, each partner divided by the pair's normaliser."""
    frames = z.shape[1]
    z = components_first(torch.where(mask.unsqueeze(-1), z, 0.0))
    sums: dict[tuple[int, int], Tensor] = {}
    for side in pairing.sides:
        for number in range(len(pairing.offsets)):
            key = side, pairing.map_of(side, number)
            sums[key] = sums[key] if key in sums else torch.zeros_like(z)
    count = torch.zeros_like(mask, dtype=torch.int64)
    for number, offset in enumerate(pairing.offsets):
        if offset >= frames:
            continue
        earlier, later = z[:, :-offset], z[:, offset:]
        valid = mask[:, :-offset] & mask[:, offset:]
        # one normaliser serves both ends of a pair
        if pairing.normalise:
            share = (valid / f.normaliser(earlier, later, pairing.min_sine, pairing.eps)).unsqueeze(-1)
        else:
            share = valid.to(z.dtype).unsqueeze(-1)
        if PAST in pairing.sides:
            sums[PAST, pairing.map_of(PAST, number)][:, offset:] += earlier * share
            count[:, offset:] += valid
        if FUTURE in pairing.sides:
            sums[FUTURE, pairing.map_of(FUTURE, number)][:, :-offset] += later * share
            count[:, :-offset] += valid
    for key, total in sums.items():
        factor = pairing.side_weights[key[0]]
        sums[key] = pairing.pooled(total, count) if factor == 1 else factor * pairing.pooled(total, count)
    by_map = tuple((sums.get((PAST, number)), sums.get((FUTURE, number))) for number in range(pairing.maps))
    return Anchors(by_map, z, count)


def components_first(x: Tensor) -> Tensor:
    """x (B, T, r) with the same indices, stored as (r, B, T): sums over r and shifts in time then run along memory."""
    return x.permute(2, 0, 1).contiguous().permute(1, 2, 0)


def project(f: PairProduct | SignDial, past: Tensor | None, future: Tensor | None, z: Tensor, weight: Tensor) -> Tensor:
    """W (f(past, z) + f.swap()(future, z)): (B, T, r) three times, one of the first two maybe None, W (D, K), to (B, T, D)."""
    if isinstance(f, SignDial):
        wedge, symmetric = (project(half, past, future, z, part) for half, part in f.halves(weight))
        return wedge + symmetric
    order = _tile_order(f, z.device)
    if order is None:
        parts = [None if past is None else f(past, z), None if future is None else f.swap()(future, z)]
        return _joined(*parts, 1) @ weight.T
    batch, frames, r = z.shape
    rows = [None if x is None else x.permute(2, 0, 1).reshape(r, batch * frames) for x in (past, future, z)]
    past, future, z = rows
    g = None
    tables, dot = order
    for sign, column, lead in tables:
        # swapping the arguments of a_i b_j + s a_j b_i multiplies it by s: both sides need one pair vector per sign
        tiles = weight.index_select(1, column) * lead.to(weight.dtype)
        part = _CyclicTiles.apply(_joined(past, future, sign), z, tiles, sign)
        g = part if g is None else g + part
    if dot is not None:
        place, sign = dot
        both = _joined(past, future, 1)
        g = torch.addcmul(g, ((both * z).sum(0) * sign).unsqueeze(1), weight[:, place].to(g.dtype))
    return g.view(batch, frames, weight.shape[0])


def _joined(past: Tensor | None, future: Tensor | None, sign: int) -> Tensor:
    """past + sign * future of those that are there."""
    if future is None:
        return past
    return future * sign if past is None else torch.add(past, future, alpha=sign)


@constant
def _tile_order(f: PairProduct, device: torch.device):
    """For each sign s in the table: (s, column of W, factor) for each place of the cyclic tiles; and (column, sign) of the dot product.

    None for a product without `pair_terms`, (tables, None) for one without a dot product.

    Tile m = 1 .. r // 2 holds, for c = 0 .. r - 1, the value a_c b_{c+m} + s a_{c+m} b_c with indices modulo r; for even r
    only the first half of the last tile is new. The places count r (r - 1) / 2: each pair once, at distance m = j - i or,
    wrapped, r - (j - i), where it appears with i and j exchanged, i.e. multiplied by s. Pairs of the other sign get factor 0.
    """
    terms, r = f.pair_terms, f.in_dim
    if terms is None:
        return None
    distance = terms.j - terms.i
    wrapped = 2 * distance > r
    place = np.where(wrapped, r - distance - 1, distance - 1) * r + np.where(wrapped, terms.j, terms.i)
    orders = []
    for sign in sorted(set(terms.sign.tolist())):
        factor = np.where(terms.sign == sign, terms.lead * np.where(wrapped, terms.sign, 1), 0)
        column, lead = np.empty_like(place), np.empty_like(place)
        column[place], lead[place] = terms.feature, factor
        orders.append((sign, torch.as_tensor(column, device=device), torch.as_tensor(lead, device=device)))
    return orders, None if terms.dot is None else (terms.dot, terms.dot_sign)


def _tiles(a: Tensor, b: Tensor, sign: int) -> Tensor:
    """All tiles of (r, n) vectors: (r // 2, r, n), without a gather: a tile is a window of the doubled rows."""
    r, n = a.shape
    a2, b2 = torch.cat((a, a)), torch.cat((b, b))
    window = lambda x: x.as_strided((r // 2, r, n), (n, n, 1), n)
    return (a * window(b2)).addcmul_(window(a2), b, value=sign)


class _CyclicTiles(torch.autograd.Function):
    """g[n] = sum over tile places p of weight[:, p] * tiles(a, b)[p, n]; a, b (r, N), weight (D, K) -> (N, D).

    The pair vectors are formed in cache, chunk by chunk, and formed again in the backward pass: they are never stored.
    """

    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor, weight: Tensor, sign: int) -> Tensor:
        ctx.save_for_backward(a, b, weight)
        ctx.sign = sign
        places = weight.shape[1]
        g = torch.empty(a.shape[1], weight.shape[0], dtype=a.dtype, device=a.device)
        for part in _chunks(a):
            pairs = _tiles(a[:, part], b[:, part], sign).flatten(0, 1)[:places]
            torch.mm(pairs.T, weight.T, out=g[part])
        return g

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        a, b, weight = ctx.saved_tensors
        sign, (r, _), places = ctx.sign, a.shape, weight.shape[1]
        grad_a, grad_b = torch.empty_like(a), torch.empty_like(b)
        grad_weight = torch.zeros(places, weight.shape[0], dtype=weight.dtype, device=weight.device)
        for part in _chunks(a):
            a_part, b_part, grad_part = a[:, part], b[:, part], grad[part]
            pairs = _tiles(a_part, b_part, sign).flatten(0, 1)[:places]
            grad_weight.addmm_(pairs, grad_part)
            grad_pairs = weight.T @ grad_part.T
            # rows of a and b appear as themselves and, through the windows, m rows further on: add both, then fold the wrap
            a2, b2 = torch.cat((a_part, a_part)), torch.cat((b_part, b_part))
            into_a, into_b = torch.zeros_like(a2), torch.zeros_like(b2)
            for m in range(1, r // 2 + 1):
                g = grad_pairs[(m - 1) * r : m * r]
                c = len(g)  # the last tile of an even r is a half
                into_a[:c].addcmul_(g, b2[m : m + c])
                into_a[m : m + c].addcmul_(g, b_part[:c], value=sign)
                into_b[:c].addcmul_(g, a2[m : m + c], value=sign)
                into_b[m : m + c].addcmul_(g, a_part[:c])
            torch.add(into_a[:r], into_a[r:], out=grad_a[:, part])
            torch.add(into_b[:r], into_b[r:], out=grad_b[:, part])
        return grad_a, grad_b, grad_weight.T, None


def _chunks(a: Tensor) -> list[slice]:
    n = a.shape[1]
    size = CHUNK if a.device.type == "cpu" else max(n, 1)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
