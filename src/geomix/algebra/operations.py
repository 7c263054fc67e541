"""Operations on multivector tensors: products, reversion, norm, sandwich, versor inverse, decomposability.

A multivector is a tensor whose last axis holds the components of an `Algebra`; leading axes broadcast. These are the
readable forms, differentiable and right for any floating dtype; `geomix.kernels.product` has the fast products.
"""

from __future__ import annotations

from math import comb

import torch

from geomix.algebra.constants import constant
from geomix.algebra.structure_constants import Algebra, SignedTriplets


@constant
def dense_table(table: SignedTriplets, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The (left, right, out) table as a tensor, made once per dtype and device."""
    return torch.as_tensor(table.dense(), dtype=dtype, device=device)


def bilinear(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """out[..., k] = sum_ij a[..., i] b[..., j] T[i, j, k]; leading axes of a (..., left) and b (..., right) broadcast."""
    dtype = torch.promote_types(a.dtype, b.dtype)
    return torch.einsum("...i,...j,ijk->...k", a.to(dtype), b.to(dtype), dense_table(table, dtype, a.device))


def product(algebra: Algebra, a: torch.Tensor, b: torch.Tensor, name: str = "geometric") -> torch.Tensor:
    """One of `tables.PRODUCTS` of two multivectors (..., dim), projected onto the algebra's grades."""
    return bilinear(algebra.product(name), a, b)


def associator(algebra: Algebra, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """(ab)c - a(bc): zero in a full algebra, in general not in a truncated one."""
    return product(algebra, product(algebra, a, b), c) - product(algebra, a, product(algebra, b, c))


def signs(values, like: torch.Tensor) -> torch.Tensor:
    """A sign vector of an algebra (its `reversion`, `involution`, `squares`, ...) as a tensor like `like`."""
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)


def reverse(algebra: Algebra, m: torch.Tensor) -> torch.Tensor:
    """~M: the order of the factors of every blade reversed."""
    return m * signs(algebra.reversion, m)


def involute(algebra: Algebra, m: torch.Tensor) -> torch.Tensor:
    """Grade involution: odd grades negated."""
    return m * signs(algebra.involution, m)


def project(algebra: Algebra, m: torch.Tensor, *grades: int) -> torch.Tensor:
    """<M>_grades, in the same layout (other components 0); ValueError for a grade outside 0..n."""
    return m * signs(algebra.has_grade(*grades), m)


def convert(source: Algebra, target: Algebra, m: torch.Tensor) -> torch.Tensor:
    """A multivector of `source` in the layout of `target` (same signature): missing components 0, surplus ones dropped."""
    origin, place = source.conversion(target)
    out = m.new_zeros(*m.shape[:-1], target.dim)
    out[..., torch.as_tensor(place, device=m.device)] = m[..., torch.as_tensor(origin, device=m.device)]
    return out


def sq_norm(algebra: Algebra, m: torch.Tensor) -> torch.Tensor:
    """<M ~M>_0 = sum_I m_I^2 times the sign of e_I, shape (...): may be negative or zero in an indefinite metric."""
    return (m * m * signs(algebra.squares, m)).sum(-1)


def gram_parts(algebra: Algebra, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(~A A, B ~B) on the grades 0 and 1 mod 4, the only ones that do not vanish: |AB|^2 is their dot product.

    For a full Euclidean algebra, <AB ~(AB)>_0 = <(~A A) (B ~B)>_0 and both factors equal their own reverse. Computed once a
    token, they turn the norm of every pair into a dot product of 4 (n = 3), 6 (n = 4) or 12 (n = 5) numbers. fp32 error:
    absolute, 60 e |A|^2 |B|^2 sqrt(dim) with e = 6e-8. Raises ValueError for another signature or a truncated algebra.
    """
    if algebra.q or algebra.r or len(algebra.grades) <= algebra.n:
        raise ValueError(f"|AB|^2 = (~A A) . (B ~B) holds in full Euclidean algebras, not in {algebra}.")
    kept = torch.as_tensor(algebra.reversion > 0, device=a.device)
    left, right = product(algebra, reverse(algebra, a), a), product(algebra, b, reverse(algebra, b))
    return left[..., kept], right[..., kept]


def safe_sqrt(x: torch.Tensor) -> torch.Tensor:
    """sqrt for x > 0, NaN for NaN, else 0 with gradient 0 (the inner `where` keeps the infinite slope at 0 out of the backward pass)."""
    positive = x > 0
    return torch.where(positive, torch.sqrt(torch.where(positive, x, torch.ones_like(x))), x * 0)


def norm(algebra: Algebra, m: torch.Tensor) -> torch.Tensor:
    """sqrt |<M ~M>_0|, shape (...); exact down to underflow (no epsilon is added) and with gradient 0 where it vanishes.

    NaN stays NaN. bf16 and fp16 are squared and summed in fp32.
    """
    return safe_sqrt(sq_norm(algebra, at_least_fp32(m)).abs()).to(m.dtype)


def versor_inverse(algebra: Algebra, v: torch.Tensor) -> torch.Tensor:
    """~V / <V ~V>_0, the inverse of any versor (product of invertible vectors); every component infinite for a null versor.

    NaN stays NaN. bf16 and fp16 are computed in fp32.
    """
    turned = reverse(algebra, at_least_fp32(v))
    square = sq_norm(algebra, at_least_fp32(v)).unsqueeze(-1)
    # a component 0 of a null versor would be 0 / 0
    infinite = (square == 0) & (turned == 0)
    return torch.where(infinite, torch.inf, turned / square).to(v.dtype)


def at_least_fp32(x: torch.Tensor) -> torch.Tensor:
    """x, or x in fp32 where it is of a half-precision type."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def two_sided_matrix(algebra: Algebra, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """(..., dim, dim) matrix of M -> (A M) B on columns, projected onto the algebra's grades after each product."""
    table = dense_table(algebra.product(), a.dtype, a.device)
    return contract_two_sided(table, a, b)


def contract_two_sided(table: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`two_sided_matrix` from a dense (dim, dim, dim) table, for modules that keep the table as a buffer."""
    left = torch.einsum("...i,ijm->...mj", a, table)  # m of A e_j
    right = torch.einsum("...l,mlk->...km", b, table)  # k of e_m B
    return right @ left


def sandwich_matrix(algebra: Algebra, versor: torch.Tensor, layout: Algebra | None = None) -> torch.Tensor:
    """(..., dim, dim) matrix of the versor's action M -> V M V^-1 on column vectors of `algebra`'s components.

    An odd versor acts on the grade-involuted M, which makes the action an outermorphism (the reflection of every vector
    factor): the Pin group's. It keeps grades, so that it is exact on a truncated algebra too.
    `versor` (..., layout.dim) is in the layout of `layout`: the full algebra (default) or, for rotors, `algebra.even`.
    """
    full = algebra.full
    v = convert(layout or full, full, versor)
    columns = torch.as_tensor(full.conversion(algebra)[0], device=v.device)
    table = dense_table(full.product(), v.dtype, v.device)
    even = signs(full.grade % 2 == 0, v)
    turned = torch.einsum("...i,ijk->...kj", v * even, table[:, columns])
    turned = turned + torch.einsum("...i,ijk->...kj", v * (1 - even), table[:, columns]) * signs(algebra.involution, v)
    return torch.einsum("...kj,...l,klm->...mj", turned, versor_inverse(full, v), table[..., columns])


def sandwich(algebra: Algebra, versor: torch.Tensor, m: torch.Tensor, layout: Algebra | None = None) -> torch.Tensor:
    """V M V^-1 for m (..., dim), by the rules of `sandwich_matrix`; for a unit rotor this is R M ~R."""
    return (sandwich_matrix(algebra, versor, layout) @ m.unsqueeze(-1)).squeeze(-1)


def blade_residual(algebra: Algebra, m: torch.Tensor, grade: int) -> torch.Tensor:
    """How far the grade-k part X of m is from a blade: max over basis (k-1)-blades A of |(A _| X) ^ X| / |X|^2, shape (...).

    Zero exactly for blades (the Plücker relations; decomposability does not depend on the metric, so the Euclidean
    contraction is used). A vanishing X counts as a blade.
    """
    euclid = Algebra(algebra.n)
    x = m.new_zeros(*m.shape[:-1], euclid.dim)
    x[..., euclid.slice(grade)] = m[..., algebra.slice(grade)]
    if grade == 0:
        return x.new_zeros(x.shape[:-1])
    probes = torch.eye(euclid.dim, dtype=x.dtype, device=x.device)[euclid.slice(grade - 1)]
    vectors = product(euclid, probes, x.unsqueeze(-2), "left_contraction")
    residual = product(euclid, vectors, x.unsqueeze(-2), "wedge").norm(dim=-1).amax(-1)
    size = (x * x).sum(-1)
    return residual / torch.where(size > 0, size, torch.ones_like(size))


def is_blade(algebra: Algebra, m: torch.Tensor, grade: int, tolerance: float | None = None) -> torch.Tensor:
    """Is the grade-k part of m decomposable, v1 ^ ... ^ vk? Boolean (...); tolerance 1e3 epsilons of the dtype by default."""
    if grade in (0, 1) or grade >= algebra.n - 1 or comb(algebra.n, grade) == 1:
        return torch.ones(m.shape[:-1], dtype=torch.bool, device=m.device)  # always decomposable
    return blade_residual(algebra, m, grade) <= (tolerance or 1e3 * torch.finfo(m.dtype).eps)
