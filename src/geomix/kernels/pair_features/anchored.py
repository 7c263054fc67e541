"""The exact rewrite of [Zhang2025]'s form: one pair vector per frame instead of one per offset.

f is linear in its first argument and all pairs of frame t share z_t, so the mean moves inside (reference: seed article;
proof in docs/math.md):

    mean_d W f(z_{t-d}, z_t) / n(t-d, t)  =  W f(past_t, z_t),       past_t = mean_d z_{t-d} / n(t-d, t)

and, for pairs with later frames, W f(z_t, z_{t+d}) / n = W f.swap()(z_{t+d}, z_t) / n. Only the norms are taken pair by pair,
in closed form. The equality holds for every bilinear f; the projection has a fast path for products of `pair_terms`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from geomix.algebra.constants import constant
from geomix.algebra.pair_product import PairProduct

CHUNK = 1024  # frames whose pair vectors are held at once on a CPU: 2 MB at r = 32, which stays in cache


def anchored(
    f: PairProduct,
    z: Tensor,
    weight: Tensor,
    mask: Tensor,
    offsets: Sequence[int],
    two_sided: bool = True,
    min_sine: float = 1e-3,
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """The same value and gradients as `naive.paper_form`, argument for argument, up to rounding."""
    past, future, z, count = anchors(f, z, mask, offsets, two_sided, min_sine, eps)
    return project(f, past, future, z, weight), count


def anchors(
    f: PairProduct, z: Tensor, mask: Tensor, offsets: Sequence[int], two_sided: bool, min_sine: float, eps: float
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Means of the partners of each frame, each partner divided by the pair's normaliser.

    Returns past and future (None when one-sided), both (B, T, r) and divided by the number of valid pairs of both sides;
    z with padded frames zeroed; and that number, (B, T) int64.
    """
    frames = z.shape[1]
    z = components_first(torch.where(mask.unsqueeze(-1), z, 0.0))
    past = torch.zeros_like(z)
    future = torch.zeros_like(z) if two_sided else None
    count = torch.zeros_like(mask, dtype=torch.int64)
    for offset in offsets:
        if offset >= frames:
            continue
        earlier, later = z[:, :-offset], z[:, offset:]
        valid = mask[:, :-offset] & mask[:, offset:]
        # one normaliser serves both ends of a pair
        share = (valid / f.normaliser(earlier, later, min_sine, eps)).unsqueeze(-1)
        past[:, offset:] += earlier * share
        count[:, offset:] += valid
        if two_sided:
            future[:, :-offset] += later * share
            count[:, :-offset] += valid
    pairs = count.clamp_min(1).to(z.dtype).unsqueeze(-1)
    return past / pairs, None if future is None else future / pairs, z, count


def components_first(x: Tensor) -> Tensor:
    """x (B, T, r) with the same indices, stored as (r, B, T): sums over r and shifts in time then run along memory."""
    return x.permute(2, 0, 1).contiguous().permute(1, 2, 0)


def project(f: PairProduct, past: Tensor, future: Tensor | None, z: Tensor, weight: Tensor) -> Tensor:
    """W (f(past, z) + f.swap()(future, z)): (B, T, r) three times, W (D, K), to (B, T, D)."""
    order = _tile_order(f, z.device)
    if order is None:
        pair = f(past, z) if future is None else f(past, z) + f.swap()(future, z)
        return pair @ weight.T
    batch, frames, r = z.shape
    rows = [None if x is None else x.permute(2, 0, 1).reshape(r, batch * frames) for x in (past, future, z)]
    past, future, z = rows
    g = None
    tables, dot = order
    for sign, column, lead in tables:
        # swapping the arguments of a_i b_j + s a_j b_i multiplies it by s: both sides need one pair vector per sign
        both = past if future is None else torch.add(past, future, alpha=sign)
        tiles = weight.index_select(1, column) * lead.to(weight.dtype)
        part = _CyclicTiles.apply(both, z, tiles, sign)
        g = part if g is None else g + part
    if dot is not None:
        place, sign = dot
        both = past if future is None else past + future
        g = torch.addcmul(g, ((both * z).sum(0) * sign).unsqueeze(1), weight[:, place].to(g.dtype))
    return g.view(batch, frames, weight.shape[0])


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
