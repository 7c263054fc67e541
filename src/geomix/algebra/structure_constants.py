"""Clifford algebras as tables: every product of Cl(p, q, r), full or grade-restricted, is a list of signed triplets.

Basis vectors e1..en come in the order p with square +1, q with square -1, r with square 0 (the `clifford` and `kingdon`
packages put the null vectors first). Basis blades are ordered by grade and then lexicographically: 1, e1, e2, e3, e12,
e13, e23, e123. Only numpy is used; tables are built in one vectorised pass (Cl(8): about 10 ms).

Sources: [Hestenes1986]; [Dorst2007], chapters 2-3 (the inner products' names are theirs).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import comb

import numpy as np

PRODUCTS = ("geometric", "wedge", "inner", "dot", "left_contraction", "right_contraction", "scalar", "commutator")
UNARY = ("reversion", "involution", "conjugation")


@dataclass(frozen=True, eq=False)
class SignedTriplets:
    """A bilinear map out[k] += sign * left[i] * right[j], as immutable parallel arrays; the only state a product has.

    Attributes: `i`, `j`, `k` int32 (N,); `sign` int8 (N,), +1 or -1; `left`, `right`, `out`: the three dimensions.
    Equality and hash are by content, so that a compiled kernel is shared by equal tables.
    """

    i: np.ndarray
    j: np.ndarray
    k: np.ndarray
    sign: np.ndarray
    left: int
    right: int
    out: int

    def __post_init__(self):
        for name, kind in (("i", np.int32), ("j", np.int32), ("k", np.int32), ("sign", np.int8)):
            given = np.asarray(getattr(self, name))
            with np.errstate(invalid="ignore"):
                whole = given.astype(kind)
            if (whole != given).any():
                raise ValueError(f"{name} of signed triplets holds {given[whole != given][0]}; give whole numbers.")
            object.__setattr__(self, name, whole)
        order = np.lexsort((self.k, self.j, self.i))  # one order, so that equal maps compare equal
        for name in ("i", "j", "k", "sign"):
            values = getattr(self, name)[order]
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        for name, values, size in (("i", self.i, self.left), ("j", self.j, self.right), ("k", self.k, self.out)):
            if values.size and not (0 <= values.min() and values.max() < size):
                raise ValueError(f"index {name} of a signed triplet is {values.max()}, but the dimension is {size}.")
        if not np.isin(self.sign, (-1, 1)).all():
            raise ValueError("the signs of signed triplets must be +1 or -1; leave a vanishing term out instead.")

    def __len__(self) -> int:
        return len(self.i)

    @cached_property
    def key(self) -> str:
        """Hash of the content (16 hex digits); names generated kernels."""
        digest = hashlib.sha256(np.array([self.left, self.right, self.out]).tobytes())
        for values in (self.i, self.j, self.k, self.sign):
            digest.update(values.tobytes())
        return digest.hexdigest()[:16]

    def __eq__(self, other) -> bool:
        return isinstance(other, SignedTriplets) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def dense(self, dtype=np.float64) -> np.ndarray:
        """(left, right, out) array T with out[k] = sum_ij left[i] right[j] T[i, j, k]."""
        table = np.zeros((self.left, self.right, self.out), dtype)
        np.add.at(table, (self.i, self.j, self.k), self.sign)
        return table

    def swap(self) -> SignedTriplets:
        """The map g with g(b, a) = f(a, b)."""
        return SignedTriplets(self.j, self.i, self.k, self.sign, self.right, self.left, self.out)

    @lru_cache(maxsize=256)  # noqa: B019 (immutable, hashed by content)
    def gradient_left(self) -> SignedTriplets:
        """The map (d_out, right) -> d_left: the same generator with a permuted table."""
        return SignedTriplets(self.k, self.j, self.i, self.sign, self.out, self.right, self.left)

    @lru_cache(maxsize=256)  # noqa: B019 (immutable, hashed by content)
    def gradient_right(self) -> SignedTriplets:
        """The map (left, d_out) -> d_right."""
        return SignedTriplets(self.i, self.k, self.j, self.sign, self.left, self.out, self.right)

    def shuffled(self, seed: int) -> SignedTriplets:
        """Same sparsity, signs drawn at random: the control that keeps the sharing and drops the geometry."""
        signs = np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), len(self))
        return SignedTriplets(self.i, self.j, self.k, signs, self.left, self.right, self.out)

    def untwisted(self) -> SignedTriplets:
        """Same sparsity, every sign +1 (a commutative table): the deterministic negative control."""
        return SignedTriplets(self.i, self.j, self.k, np.ones(len(self), np.int8), self.left, self.right, self.out)

    def gauge(self, signs) -> SignedTriplets:
        """The table after e_I -> t_I e_I on all three sides (t = `signs`, +-1 each): an isomorphic algebra in disguise."""
        t = np.asarray(signs, np.int8)
        if not self.left == self.right == self.out == len(t):
            raise ValueError(f"a gauge needs one sign per component of a square table, got {len(t)} for {self.out}.")
        return SignedTriplets(
            self.i, self.j, self.k, self.sign * t[self.i] * t[self.j] * t[self.k], self.left, self.right, self.out
        )


@dataclass(frozen=True)
class Algebra:
    """Cl(p, q, r) restricted to a set of grades (all of them by default).

    Arguments: `p`, `q`, `r` numbers of basis vectors squaring to +1, -1, 0; `grades` retained grades, e.g. (0, 1, 2), or None.
    Components of a multivector are its last axis, of length `dim`, in the order of `blades`.
    Raises ValueError for a count or a grade that is no whole number, for a negative count, for an empty algebra or for a grade
    outside 0..n.
    """

    p: int
    q: int = 0
    r: int = 0
    grades: tuple[int, ...] | None = field(default=None)

    def __post_init__(self):
        for name in "pqr":
            if type(getattr(self, name)) is not int or getattr(self, name) < 0:
                raise ValueError(
                    f"{name} of Cl(p, q, r) is {getattr(self, name)!r}; it must be an integer of at least 0."
                )
        grades = tuple(range(self.n + 1) if self.grades is None else self.grades)
        if self.grades is not None and not all(type(g) is int or isinstance(g, np.integer) for g in grades):
            raise ValueError(f"grades {grades} of Cl{self.p, self.q, self.r} must be whole numbers.")
        grades = tuple(sorted({int(g) for g in grades}))
        if not grades or grades[0] < 0 or grades[-1] > self.n:
            raise ValueError(
                f"grades {grades} of Cl{self.p, self.q, self.r} must be a non-empty subset of 0..{self.n}."
            )
        object.__setattr__(self, "grades", grades)

    @classmethod
    def truncated(cls, n: int, k: int) -> Algebra:
        """Euclidean Cl(n) with grades 0..k, the cases (n, k) of the k-blade benchmark."""
        return cls(n, grades=tuple(range(k + 1)))

    @property
    def n(self) -> int:
        """Number of basis vectors."""
        return self.p + self.q + self.r

    @property
    def full(self) -> Algebra:
        """The same algebra with every grade retained."""
        return Algebra(self.p, self.q, self.r)

    @property
    def even(self) -> Algebra:
        """The same signature with the even grades only (a subalgebra; rotors live here)."""
        return Algebra(self.p, self.q, self.r, tuple(range(0, self.n + 1, 2)))

    def __str__(self) -> str:
        name = f"Cl({self.p},{self.q},{self.r})"
        return name if len(self.grades) == self.n + 1 else f"{name} grades {','.join(map(str, self.grades))}"

    @cached_property
    def metric(self) -> np.ndarray:
        """Squares of e1..en, int8 (n,)."""
        return np.repeat(np.array([1, -1, 0], np.int8), (self.p, self.q, self.r))

    @cached_property
    def blades(self) -> np.ndarray:
        """Bit mask of each retained blade (bit v-1 is set when e_v is a factor), int64 (dim,), by grade, then lexicographic."""
        masks = np.arange(1 << self.n)
        bits = (masks[:, None] >> np.arange(self.n)) & 1
        # lexicographic order of the index lists inside a grade = descending order of the reversed bit string
        order = np.lexsort((-(bits @ (1 << np.arange(self.n)[::-1])), bits.sum(1)))
        masks, grade = masks[order], bits.sum(1)[order]
        return masks[np.isin(grade, self.grades)]

    @cached_property
    def dim(self) -> int:
        """Number of retained components L."""
        return len(self.blades)

    @cached_property
    def grade(self) -> np.ndarray:
        """Grade of each component, int64 (dim,)."""
        return np.bitwise_count(self.blades).astype(np.int64)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """'1', 'e1', 'e12', ... (indices joined by '_' from e10 on)."""
        joint = "" if self.n < 10 else "_"
        lists = [[str(v + 1) for v in range(self.n) if mask >> v & 1] for mask in self.blades.tolist()]
        return tuple("e" + joint.join(indices) if indices else "1" for indices in lists)

    def slice(self, grade: int) -> slice:
        """Where the components of one grade lie; ValueError if the grade is not retained."""
        if grade not in self.grades:
            raise ValueError(f"grade {grade} is not retained in {self}.")
        start = int(np.searchsorted(self.grade, grade))
        return slice(start, start + comb(self.n, grade))

    def has_grade(self, *grades: int) -> np.ndarray:
        """Which components are of one of `grades`, bool (dim,); ValueError for a grade outside 0..n."""
        for grade in grades:
            if grade not in range(self.n + 1):
                raise ValueError(f"there is no grade {grade} in {self}: choose from 0..{self.n}.")
        return sum((self.grade == g for g in grades), np.zeros(self.dim, bool))

    def index(self, name: str) -> int:
        """Component of a blade by its name, e.g. index('e12')."""
        if name not in self.names:
            raise ValueError(f"{self} has no blade {name}; its blades are {', '.join(self.names)}.")
        return self.names.index(name)

    @cached_property
    def squares(self) -> np.ndarray:
        """<e_I ~e_I>_0 of each component, int8 (dim,): the product of the metric over its factors. The norm's signs."""
        bits = (self.blades[:, None] >> np.arange(self.n)) & 1
        return np.where(bits, self.metric, 1).prod(1).astype(np.int8)

    @cached_property
    def reversion(self) -> np.ndarray:
        """(-1)^(g(g-1)/2) per component, int8 (dim,)."""
        return (1 - (self.grade * (self.grade - 1) // 2 % 2) * 2).astype(np.int8)

    @cached_property
    def involution(self) -> np.ndarray:
        """Grade involution: (-1)^g per component, int8 (dim,)."""
        return (1 - self.grade % 2 * 2).astype(np.int8)

    @cached_property
    def conjugation(self) -> np.ndarray:
        """Clifford conjugation: reversion times grade involution, int8 (dim,)."""
        return self.reversion * self.involution

    def product(self, name: str = "geometric") -> SignedTriplets:
        """Table of one of PRODUCTS on this algebra's components; what falls outside the retained grades is discarded.

        geometric: AB. wedge: grade a+b part. left_contraction: grade b-a. right_contraction: grade a-b. dot: grade |a-b|.
        inner: Hestenes' inner product, dot without scalars. scalar: grade 0. commutator: (AB - BA) / 2.
        """
        return _product(self, name)

    def unary(self, name: str) -> SignedTriplets:
        """Reversion, involution or conjugation as triplets (I, 0, I, sign): the second argument is the scalar 1."""
        if name not in UNARY:
            raise ValueError(f"unary operation {name!r} is unknown; choose one of {', '.join(UNARY)}.")
        every = np.arange(self.dim)
        return SignedTriplets(every, np.zeros_like(every), every, getattr(self, name), self.dim, 1, self.dim)

    def projection(self, *grades: int) -> SignedTriplets:
        """Grade projection onto `grades` as triplets (I, 0, I, +1); components of other grades become 0."""
        kept = np.flatnonzero(self.has_grade(*grades))
        return SignedTriplets(kept, np.zeros_like(kept), kept, np.ones_like(kept), self.dim, 1, self.dim)

    def conversion(self, other: Algebra) -> tuple[np.ndarray, np.ndarray]:
        """(from, to): components that this algebra and `other` (same signature, other grades) share, as two index arrays."""
        if (self.p, self.q, self.r) != (other.p, other.q, other.r):
            raise ValueError(f"{self} and {other} have different signatures.")
        shared = [
            (a, b) for a, b in ((i, np.flatnonzero(other.blades == m)) for i, m in enumerate(self.blades)) if b.size
        ]
        return np.array([a for a, _ in shared], int), np.array([b[0] for _, b in shared], int)


@lru_cache(maxsize=256)
def _product(algebra: Algebra, name: str) -> SignedTriplets:
    if name not in PRODUCTS:
        raise ValueError(f"product {name!r} is unknown; choose one of {', '.join(PRODUCTS)}.")
    blades, grade, n = algebra.blades, algebra.grade, algebra.n
    a, b = blades[:, None], blades[None, :]
    # e_a e_b: each factor of b passes the factors of a with a higher index, then equal factors contract with the metric
    passed = np.zeros(a.shape[:1] + b.shape[1:], np.int64)
    for shift in range(1, n):
        passed += np.bitwise_count((a >> shift) & b)
    negative = sum((1 << v for v in range(n) if algebra.metric[v] < 0), 0)
    null = sum((1 << v for v in range(n) if algebra.metric[v] == 0), 0)
    sign = 1 - (passed + np.bitwise_count(a & b & negative)) % 2 * 2
    place = np.full(1 << n, -1)
    place[blades] = np.arange(len(blades))
    k = place[a ^ b]
    ga, gb, gk = grade[:, None], grade[None, :], np.bitwise_count(a ^ b)
    kept = (k >= 0) & (a & b & null == 0)
    if name == "wedge":
        kept &= gk == ga + gb
    elif name == "left_contraction":
        kept &= gk == gb - ga
    elif name == "right_contraction":
        kept &= gk == ga - gb
    elif name == "dot":
        kept &= gk == abs(ga - gb)
    elif name == "inner":
        kept &= (gk == abs(ga - gb)) & (ga > 0) & (gb > 0)
    elif name == "scalar":
        kept &= gk == 0
    elif name == "commutator":  # basis blades commute or anticommute; (AB - BA) / 2 keeps the second kind whole
        kept &= sign != sign.T
    i, j = np.nonzero(kept)
    return SignedTriplets(i, j, k[i, j], sign[i, j], len(blades), len(blades), len(blades))


def pair_count(n: int, k: int) -> int:
    """Non-zero pairs of the non-degenerate Cl(n) truncated to grades 0..k, in closed form.

    Sum over grades a, b <= k and overlap m with a+b-2m <= k and a+b-m <= n of C(n, m) C(n-m, a-m) C(n-a, b-m).
    """
    return sum(
        comb(n, m) * comb(n - m, a - m) * comb(n - a, b - m)
        for a in range(k + 1)
        for b in range(k + 1)
        for m in range(min(a, b) + 1)
        if a + b - 2 * m <= k and a + b - m <= n
    )
