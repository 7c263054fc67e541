"""Bilinear products of two vectors as one immutable table of signed triplets.

A product is a list of triplets (i, j, k, sign): output coordinate k receives sign * a_i * b_j. Plücker coordinates, their
symmetric control, random-sign controls, the geometric product of two vectors and truncated Clifford products are
constructors of the same object, so a study's arms differ in a table and in nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from geomix.algebra.constants import constant
from geomix.algebra.operations import at_least_fp32, safe_sqrt
from geomix.algebra.structure_constants import Algebra, SignedTriplets

PAIR_KINDS = ("wedge", "symmetric", "signed", "geometric")
SMALL = 8  # below this rank the norm is that of the coordinates: a closed form cancels against its few terms


class PairTerms(NamedTuple):
    """Coordinates of the form lead * (a_i b_j + sign * a_j b_i), one for each unordered pair i < j, and maybe a dot product.

    `i`, `j`, `lead`, `sign`, `feature` are integer arrays of r (r - 1) / 2 entries, ordered by (i, j); `feature` is the
    output coordinate. `dot` is the output coordinate that holds a . b, or None; `dot_sign` is its sign.
    """

    i: np.ndarray
    j: np.ndarray
    lead: np.ndarray
    sign: np.ndarray
    feature: np.ndarray
    dot: int | None
    dot_sign: int


class _Group(NamedTuple):
    """Output coordinates with the same number of terms: i, j, sign are (terms, coordinates), `features` their places."""

    i: np.ndarray
    j: np.ndarray
    sign: np.ndarray
    features: np.ndarray


@dataclass(frozen=True)
class PairProduct:
    """A bilinear map f(a, b) of vectors of `in_dim` numbers to `out_dim` coordinates, given by signed triplets.

    Args:
        in_dim: length r of both arguments.
        out_dim: number of output coordinates.
        triplets: (i, j, k, sign) with sign +1 or -1; each (i, j, k) at most once.

    The triplets are the only state. Closed forms are recognised from them (`pair_terms`), so a product keeps its fast norm
    however it was constructed. Equal tables compare and hash equal.
    """

    in_dim: int
    out_dim: int
    triplets: tuple[tuple[int, int, int, int], ...]

    def __post_init__(self) -> None:
        inside, outside = range(self.in_dim), range(self.out_dim)
        for i, j, k, s in self.triplets:
            if not (i in inside and j in inside and k in outside and s in (1, -1)):
                raise ValueError(
                    f"triplet {(i, j, k, s)} does not fit a product of {self.in_dim} to {self.out_dim} coordinates: "
                    "indices must lie inside and the sign must be +1 or -1"
                )
        triplets = tuple(sorted((int(k), int(i), int(j), int(s)) for i, j, k, s in self.triplets))
        if len({t[:3] for t in triplets}) != len(triplets):
            raise ValueError("a triplet (i, j, k) is given twice: add its signs up first")
        object.__setattr__(self, "triplets", tuple((i, j, k, s) for k, i, j, s in triplets))
        object.__setattr__(self, "_hash", hash((self.in_dim, self.out_dim, self.triplets)))

    def __hash__(self) -> int:
        return self._hash  # a key of several caches: hashing 992 triplets takes longer than the look-up

    # -- constructors ---------------------------------------------------------------------------------------------------

    @classmethod
    def wedge(cls, r: int) -> PairProduct:
        """Plücker coordinates a_i b_j - a_j b_i, i < j ([Zhang2025], section 3): r (r - 1) / 2 coordinates."""
        return cls.from_signs(_constant_signs(r, -1))

    @classmethod
    def symmetric(cls, r: int) -> PairProduct:
        """The control without geometry: a_i b_j + a_j b_i, i < j. Same size as `wedge`, and not a function of the plane."""
        return cls.from_signs(_constant_signs(r, 1))

    @classmethod
    def signed(cls, r: int, seed: int) -> PairProduct:
        """The random-sign control: a_i b_j + s_ij a_j b_i with s_ij drawn from `seed`.

        A table with s_ij = -t_i t_j is the wedge after b -> t * b and a relabelling, hence no control: it is redrawn.
        """
        if r < 3:
            raise ValueError(f"r = {r}: below 3 dimensions every sign table is equivalent to the wedge; use r >= 3")
        generator = np.random.default_rng(seed)
        while True:
            upper = np.triu(generator.integers(0, 2, size=(r, r)) * 2 - 1, 1)
            signs = upper + upper.T
            if not is_gauge_wedge(signs):
                return cls.from_signs(signs)

    @classmethod
    def geometric(cls, r: int) -> PairProduct:
        """Geometric product of two vectors: a . b first, then the wedge; 1 + r (r - 1) / 2 coordinates (497 at r = 32)."""
        wedge = cls.wedge(r)
        dot = tuple((i, i, 0, 1) for i in range(r))
        return cls(r, wedge.out_dim + 1, dot + tuple((i, j, k + 1, s) for i, j, k, s in wedge.triplets))

    @classmethod
    def clifford(cls, p: int, q: int = 0, r: int = 0, grades: Sequence[int] | None = None) -> PairProduct:
        """Geometric product of two multivectors of Cl(p, q, r), both restricted to `grades` (all by default) and so is the result.

        Coordinates are the components of `tables.Algebra(p, q, r, grades)`; those that no pair reaches raise ValueError.
        """
        algebra = Algebra(p, q, r, None if grades is None else tuple(grades))
        table = algebra.product()
        empty = [name for k, name in enumerate(algebra.names) if k not in set(table.k.tolist())]
        if empty:
            raise ValueError(f"no pair of {algebra} reaches its coordinates {', '.join(empty)}: retain other grades")
        columns = (v.tolist() for v in (table.i, table.j, table.k, table.sign))
        return cls(algebra.dim, algebra.dim, tuple(zip(*columns, strict=True)))

    @classmethod
    def from_signs(cls, signs: np.ndarray) -> PairProduct:
        """The product a_i b_j + s_ij a_j b_i, i < j in lexicographic order, of a symmetric (r, r) table of +-1."""
        r = len(signs)
        if r < 2:
            raise ValueError(f"r = {r}: a pair needs at least two dimensions")
        triplets: list[tuple[int, int, int, int]] = []
        for k, (i, j) in enumerate(itertools.combinations(range(r), 2)):
            triplets += [(i, j, k, 1), (j, i, k, int(signs[i, j]))]
        return cls(r, r * (r - 1) // 2, tuple(triplets))

    # -- the map --------------------------------------------------------------------------------------------------------

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """f(a, b): (..., in_dim) and (..., in_dim), which broadcast, to (..., out_dim)."""
        self.check(a, b)
        parts = []
        for i, j, sign in self._groups(a.device):
            total = None
            for row in range(len(i)):
                term = a.index_select(-1, i[row]) * b.index_select(-1, j[row])
                if sign[row] is not None:
                    term = term * sign[row].to(term.dtype)
                total = term if total is None else total + term
            parts.append(total)
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        order = self._order(a.device)
        return joined if order is None else joined.index_select(-1, order)

    def check(self, *vectors: Tensor) -> None:
        """ValueError unless the last axis of each is `in_dim`."""
        for x in vectors:
            if x.shape[-1] != self.in_dim:
                raise ValueError(f"this product takes vectors of {self.in_dim} numbers, got {x.shape[-1]}")

    def swap(self) -> PairProduct:
        """The product with its arguments exchanged: f.swap()(a, b) == f(b, a)."""
        return _swap(self)

    # -- norms ----------------------------------------------------------------------------------------------------------

    def sq_norm(self, a: Tensor, b: Tensor) -> Tensor:
        """|f(a, b)|^2 over the last axis, in closed form where one is known, else the sum of squared coordinates.

        With A = a.a, B = b.b, c = a.b, u = a * b (elementwise), e = 6e-8 (half the spacing of fp32) and r from 8 to 64:

        | table | form | error in fp32 |
        | --- | --- | --- |
        | all signs -1 (wedge) | A |b - (c / A) a|^2, free of cancellation | relative 60 e / sine of the angle |
        | all signs +1 (symmetric) | A B + c^2 - 2 u.u | absolute 60 e A B |
        | mixed signs | A B - u.u + u^T S u | absolute 60 e r A B |
        | dot product and wedge (geometric) | A B, no cancellation, for any r | relative 60 e |
        | any other, and r below 8 | sum of squares, no cancellation between squares | that of the coordinates |

        Below r = 8 the sum has at most 21 squares, and a closed form would cancel: the symmetric square at r = 2 is a single
        coordinate's. The bare Lagrange difference A B - c^2 is never used: in fp32 it is noise below 3e-4 rad (reference:
        property test). bf16 and fp16 are computed in fp32 and rounded once.
        """
        self.check(a, b)
        return self._sq_norm(at_least_fp32(a), at_least_fp32(b)).to(torch.promote_types(a.dtype, b.dtype))

    def _sq_norm(self, a: Tensor, b: Tensor) -> Tensor:
        form = _norm_form(self)
        if form == "sum":
            return self(a, b).square().sum(-1)
        A, B = a.square().sum(-1), b.square().sum(-1)
        if form == "product":  # Lagrange: the dot product restores what the wedge subtracts
            return A * B
        if form.startswith("cyclic"):
            pairs = self._cyclic_sq_norm(a, b)
        else:
            pairs = self._closed_sq_norm(form.removesuffix(" and dot"), a, b, A, B)
        return pairs + (a * b).sum(-1).square() if form.endswith(" and dot") else pairs

    def _cyclic_sq_norm(self, a: Tensor, b: Tensor) -> Tensor:
        """Sum of the squares of the pair coordinates, by cyclic distance: each pair occurs as (i, j) and as (j, i)."""
        signs, total = _signs(self, a.dtype, a.device), 0.0
        for m in range(1, self.in_dim):
            coordinates = a * b.roll(-m, -1) + signs[m] * a.roll(-m, -1) * b
            total = total + coordinates.square().sum(-1)
        return total / 2

    def _closed_sq_norm(self, form: str, a: Tensor, b: Tensor, A: Tensor, B: Tensor) -> Tensor:
        u = a * b
        c = u.sum(-1)
        if form == "wedge":
            ratio = c / torch.where(A > 0, A, 1.0)
            return A * (b - ratio.unsqueeze(-1) * a).square().sum(-1)
        if form == "symmetric":
            return (A * B + c.square() - 2 * u.square().sum(-1)).clamp_min(0)
        return (A * B + (u * (u @ _sign_matrix(self, u.dtype, u.device) - u)).sum(-1)).clamp_min(0)

    def norm(self, a: Tensor, b: Tensor) -> Tensor:
        """|f(a, b)|; its gradient is zero, not NaN, where the norm is zero, and NaN stays NaN."""
        self.check(a, b)
        squared = self._sq_norm(at_least_fp32(a), at_least_fp32(b))
        return safe_sqrt(squared).to(torch.promote_types(a.dtype, b.dtype))

    def normaliser(self, a: Tensor, b: Tensor, min_sine: float = 1e-3, eps: float = 1e-6) -> Tensor:
        """n = max(|f(a, b)|, min_sine |a| |b|, eps): what a pair feature is divided by.

        The middle term keeps a thin pair (nearly parallel vectors, for which |f| is rounding) from becoming a unit feature:
        f / n stays continuous and is zero for equal vectors. One square root, of a positive number: finite gradients everywhere.
        """
        self.check(a, b)
        return floored_norm(self._sq_norm, a, b, min_sine, eps)

    # -- structure ------------------------------------------------------------------------------------------------------

    @cached_property
    def pair_terms(self) -> PairTerms | None:
        """The table as `PairTerms`, or None when it is not of that form (for instance a product of multivectors)."""
        by_output: dict[int, list[tuple[int, int, int]]] = {}
        for i, j, k, s in self.triplets:
            by_output.setdefault(k, []).append((i, j, s))
        pairs, dot, dot_sign = [], None, 1
        for k, entries in by_output.items():
            if len(entries) == 2 and entries[0][:2] == entries[1][1::-1] and entries[0][0] < entries[0][1]:
                (i, j, lead), (_, _, other) = entries
                pairs.append((i, j, lead, lead * other, k))
            elif (
                dot is None
                and len(entries) == self.in_dim
                and all(i == j for i, j, _ in entries)
                and len({s for *_, s in entries}) == 1
            ):
                dot, dot_sign = k, entries[0][2]
            else:
                return None
        pairs.sort()
        if [p[:2] for p in pairs] != list(itertools.combinations(range(self.in_dim), 2)):
            return None
        if len(by_output) != self.out_dim:
            return None
        return PairTerms(*(np.array(column) for column in zip(*pairs, strict=True)), dot, dot_sign)

    @cached_property
    def table(self) -> SignedTriplets:
        """The triplets as arrays, the form that `kernels.product` takes."""
        i, j, k, sign = (np.array(column) for column in zip(*self.triplets, strict=True))
        return SignedTriplets(i, j, k, sign, self.in_dim, self.in_dim, self.out_dim)

    @cached_property
    def sign_table(self) -> np.ndarray:
        """Symmetric (r, r) table of s_ij with a zero diagonal, for products that have `pair_terms`."""
        terms = self.pair_terms
        if terms is None:
            raise ValueError("this product has no table of pair signs: its coordinates are not one per unordered pair")
        table = np.zeros((self.in_dim, self.in_dim), dtype=np.int64)
        table[terms.i, terms.j] = table[terms.j, terms.i] = terms.sign
        return table

    @cached_property
    def _table_groups(self) -> tuple[_Group, ...]:
        by_output: dict[int, list[tuple[int, int, int]]] = {}
        for i, j, k, s in self.triplets:
            by_output.setdefault(k, []).append((i, j, s))
        by_size: dict[int, list[int]] = {}
        for k in range(self.out_dim):
            by_size.setdefault(len(by_output.get(k, ())), []).append(k)
        if 0 in by_size:
            raise ValueError(f"output coordinates {by_size[0][:5]} have no term: leave them out of the product")
        groups = []
        for _, outputs in sorted(by_size.items(), key=lambda item: item[1][0]):
            table = np.array([by_output[k] for k in outputs]).transpose(2, 1, 0)  # (3, terms, coordinates)
            groups.append(_Group(*table, np.array(outputs)))
        return tuple(groups)

    def _groups(self, device: torch.device) -> list[tuple[Tensor, Tensor, list[Tensor | None]]]:
        return _on_device(self, device)[0]

    def _order(self, device: torch.device) -> Tensor | None:
        return _on_device(self, device)[1]


def floored_norm(
    sq_norm: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, min_sine: float, eps: float
) -> Tensor:
    """max(|f(a, b)|, min_sine |a| |b|, eps) of a product's `sq_norm`, which is given at least fp32."""
    dtype, a, b = torch.promote_types(a.dtype, b.dtype), at_least_fp32(a), at_least_fp32(b)
    floor = min_sine**2 * a.square().sum(-1) * b.square().sum(-1)
    return torch.maximum(sq_norm(a, b), floor).clamp_min(eps**2).sqrt().to(dtype)


@constant
def _norm_form(product: PairProduct) -> str:
    """Which form of `sq_norm` a product takes: sum, product, or wedge, symmetric, signed or cyclic, maybe with " and dot"."""
    terms = product.pair_terms
    if terms is None:
        return "sum"
    same = "wedge" if (terms.sign < 0).all() else "symmetric" if (terms.sign > 0).all() else "signed"
    if terms.dot is not None and same == "wedge":
        return "product"
    if product.in_dim < SMALL:
        same = "cyclic"
    return same if terms.dot is None else f"{same} and dot"


@constant
def _signs(product: PairProduct, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(r, r): row m, column c is the sign of the pair (c, c + m mod r)."""
    column = np.arange(product.in_dim)
    rows = [product.sign_table[column, (column + m) % product.in_dim] for m in range(product.in_dim)]
    return torch.as_tensor(np.array(rows), dtype=dtype, device=device)


@constant
def _sign_matrix(product: PairProduct, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`PairProduct.sign_table` on a device."""
    return torch.as_tensor(product.sign_table, dtype=dtype, device=device)


@constant
def _on_device(product: PairProduct, device: torch.device):
    """The table's index tensors on `device`, and the permutation back to output order (None when it is the identity)."""
    groups = []
    for group in product._table_groups:
        signs = [None if (row == 1).all() else torch.as_tensor(row, device=device) for row in group.sign]
        groups.append((torch.as_tensor(group.i, device=device), torch.as_tensor(group.j, device=device), signs))
    joined = np.concatenate([group.features for group in product._table_groups])
    order = None if (joined == np.arange(len(joined))).all() else torch.as_tensor(np.argsort(joined), device=device)
    return groups, order


@lru_cache(maxsize=64)
def _swap(product: PairProduct) -> PairProduct:
    return PairProduct(product.in_dim, product.out_dim, tuple((j, i, k, s) for i, j, k, s in product.triplets))


def _constant_signs(r: int, sign: int) -> np.ndarray:
    return sign * (np.ones((r, r), dtype=np.int64) - np.eye(r, dtype=np.int64))


def is_gauge_wedge(signs: np.ndarray) -> bool:
    """Whether s_ij = -t_i t_j for some t of +-1, so that the table is the wedge in other coordinates.

    Args:
        signs: symmetric (r, r) table of +-1; its diagonal is not read.
    """
    t = np.concatenate([[1], -signs[0, 1:]])
    off_diagonal = ~np.eye(len(signs), dtype=bool)
    return bool((signs == -np.outer(t, t))[off_diagonal].all())


def product_of_kind(kind: str, r: int, seed: int = 0) -> PairProduct:
    """The product that a mixer's `kind` names: wedge, symmetric, signed (drawn from `seed`) or geometric."""
    return _product_of_kind(kind, r, seed if kind == "signed" else 0)


@lru_cache(maxsize=64)
def _product_of_kind(kind: str, r: int, seed: int) -> PairProduct:
    if kind == "signed":
        return PairProduct.signed(r, seed)
    if kind not in PAIR_KINDS:
        raise ValueError(f"kind {kind!r} is not a pair product: choose one of {', '.join(PAIR_KINDS)}")
    return getattr(PairProduct, kind)(r)


@constant
def has_pair_terms(product: PairProduct) -> bool:
    """Whether a product has `pair_terms`, also where torch.compile traces."""
    return product.pair_terms is not None
