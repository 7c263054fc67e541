"""Multiplication tables of the study's arms: the true one, its controls, and what is known of a table before it is used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geomix.algebra import Algebra, SignedTriplets
from geomix.errors import UserError
from geomix.seeds import derive_seed


@dataclass(frozen=True)
class Table:
    """A multiplication table on an algebra's components, and the signs that inputs and targets take with it (a gauge)."""

    name: str
    triplets: SignedTriplets
    signs: np.ndarray


def restrict(triplets: SignedTriplets, kept: np.ndarray) -> SignedTriplets:
    """The table on the components `kept` alone: terms that need or make others are left out."""
    place = np.full(triplets.out, -1)
    place[kept] = np.arange(len(kept))
    i, j, k = place[triplets.i], place[triplets.j], place[triplets.k]
    inside = (i >= 0) & (j >= 0) & (k >= 0)
    n = len(kept)
    return SignedTriplets(i[inside], j[inside], k[inside], triplets.sign[inside], n, n, n)


def tables_of(arm: str, algebra: Algebra, count: int = 1) -> list[Table]:
    """The tables of a Clifford-like arm on the components of `algebra` (Euclidean).

    Tables are drawn on the full algebra and cut down to `algebra`, so that table 3 is the same table in every task.
    """
    full, n = algebra.full, algebra.n
    kept = full.conversion(algebra)[0]
    true = full.product()
    plain = np.ones(algebra.dim, np.int8)
    signatures = {
        "clifford": Algebra(n),
        "other_signature": Algebra(0, n),
        "mixed_signature": Algebra(n - n // 2, n // 2),
    }
    if arm in signatures:
        other = signatures[arm]
        return [Table(str(other), restrict(other.product(), kept), plain)]
    if arm == "all_plus":
        return [Table("all plus", restrict(true.untwisted(), kept), plain)]
    if arm == "shuffled":
        return [
            Table(f"signs {t}", restrict(true.shuffled(derive_seed("algebra", "signs", n, t) % 2**32), kept), plain)
            for t in range(count)
        ]
    if arm == "gauge":
        found = []
        for t in range(count):
            draw = np.random.default_rng(derive_seed("algebra", "gauge", n, t) % 2**32)
            signs = draw.choice(np.array([-1, 1], np.int8), full.dim)
            signs[0] = 1  # the bias is a scalar
            found.append(Table(f"gauge {t}", restrict(true.gauge(signs), kept), signs[kept]))
        return found
    raise UserError(f"arm {arm!r} has no table")


def anticommuting(triplets: SignedTriplets, algebra: Algebra, grade: int) -> tuple[int, int]:
    """(pairs of distinct basis blades of a grade that anticommute, pairs), within `algebra`'s components."""
    if grade not in algebra.grades:
        return 0, 0
    table = triplets.dense()
    places = range(algebra.dim)[algebra.slice(grade)]
    pairs = [(a, b) for a in places for b in places if a < b]
    return sum(bool(np.array_equal(table[a, b], -table[b, a])) for a, b in pairs), len(pairs)


def associator_norm(triplets: SignedTriplets) -> float:
    """Root mean square over basis blades of |(e_I e_J) e_K - e_I (e_J e_K)|: 0 for an associative table, at most 2."""
    table = triplets.dense()
    difference = np.einsum("ijm,mkl->ijkl", table, table) - np.einsum("iml,jkm->ijkl", table, table)
    return float(np.sqrt((difference**2).sum(-1).mean()))


def dual_pairs(algebra: Algebra) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, in the full algebra, of 1, e12, e13, e23 and of their products with the pseudoscalar, and the signs of those."""
    full = algebra.full
    quaternion = np.array([full.index(name) for name in ("1", "e12", "e13", "e23")])
    rows = full.product().dense()[full.dim - 1, quaternion]
    return quaternion, np.abs(rows).argmax(1), rows.sum(1)
