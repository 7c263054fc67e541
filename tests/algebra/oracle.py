"""The `clifford` package as an independent oracle, in this package's order of vectors and blades."""

from functools import cache

import clifford
import numpy as np

from geomix.algebra import Algebra

SIGNATURES = [
    (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0), (4, 1, 0), (1, 3, 0), (3, 0, 1), (0, 3, 0), (0, 5, 0), (1, 1, 1),
]  # fmt: skip


@cache
def layout(p: int, q: int, r: int):
    """(clifford layout, matrix P): row I of P is this package's blade I in clifford's coordinates.

    clifford puts the null vectors first; the blades are multiplied out in clifford itself, so that no sign rule is shared.
    """
    built, _ = clifford.Cl(p, q, r)
    vectors = built.basis_vectors_lst
    signature = list(built.sig)
    order = [i for wanted in (1, -1, 0) for i, s in enumerate(signature) if s == wanted]
    rows = []
    for mask in Algebra(p, q, r).blades.tolist():
        blade = built.scalar
        for v in range(p + q + r):
            if mask >> v & 1:
                blade = blade ^ vectors[order[v]]
        rows.append(blade.value)
    return built, np.array(rows)


@cache
def table(algebra: Algebra, name: str) -> np.ndarray:
    """(dim, dim, dim) table T[i, j, k] of a product, operands and result restricted to the algebra's grades."""
    built, basis = layout(algebra.p, algebra.q, algebra.r)
    theirs = {"geometric": built.gmt, "wedge": built.omt, "inner": built.imt, "left_contraction": built.lcmt}[name]
    ours = np.einsum("ai,ikj,bj,ck->abc", basis, theirs.todense(), basis, basis, optimize=True)
    kept = np.flatnonzero(np.isin(algebra.full.blades, algebra.blades))
    return ours[np.ix_(kept, kept, kept)]


def multiply(algebra: Algebra, a: np.ndarray, b: np.ndarray, name: str = "geometric") -> np.ndarray:
    """Product of two multivectors in this package's layout, computed by clifford's own operators."""
    return from_clifford(algebra, {
        "geometric": lambda x, y: x * y,
        "wedge": lambda x, y: x ^ y,
        "inner": lambda x, y: x | y,
        "left_contraction": lambda x, y: x.lc(y),
    }[name](to_clifford(algebra, a), to_clifford(algebra, b)))  # fmt: skip


def to_clifford(algebra: Algebra, m: np.ndarray):
    """A clifford MultiVector with the components of m (algebra.dim,)."""
    built, basis = layout(algebra.p, algebra.q, algebra.r)
    kept = np.isin(algebra.full.blades, algebra.blades)
    return clifford.MultiVector(built, np.asarray(m, float) @ basis[kept])


def from_clifford(algebra: Algebra, m) -> np.ndarray:
    """Components of a clifford MultiVector in this package's layout."""
    _, basis = layout(algebra.p, algebra.q, algebra.r)
    return (basis @ m.value)[np.isin(algebra.full.blades, algebra.blades)]
