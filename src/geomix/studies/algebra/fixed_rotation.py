"""The fixed rotation: recover x -> R x ~R from N noisy pairs, every arm in closed form or by alternating least squares.

The Clifford-like arms fit y = sum_t (A_t x) B_t; with one term that is 16 numbers in Cl(3). For given B the fit is linear in A and
the other way round, so that each half step is a least-squares solution; several starts are tried and the one with the smallest
training error is kept. The error on the test distribution (x standard normal, no noise) needs no samples:
E |(M - R) x|^2 / E |x|^2 = |M - R|_F^2 / dim for the fitted matrix M and the rotation's matrix R.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from geomix.algebra import Algebra, SignedTriplets
from geomix.algebra.structure_constants import span_rank
from geomix.studies.algebra.tables import anticommuting, associator_norm, dual_pairs, tables_of

SAMPLES, NOISE = (4, 16, 64), 0.05
STARTS, ITERATIONS = 4, 60
TEST_SAMPLES = 512
CL3 = Algebra(3)


def fit_arm(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All tables, rotations and sample sizes of an arm. `errors` (tables, rotations) are those of 16 samples; `by_samples` has all."""
    arm, rotations = settings["arm"], settings["rotations"]
    truth = rotation_matrices(rotations)
    begun, errors = time.process_time(), {}
    for n in SAMPLES:
        x, y = noisy_pairs(truth, n)
        errors[n] = _errors(arm, x, y, truth, settings.get("tables", 1))
    seconds = (time.process_time() - begun) / (len(SAMPLES) * errors[SAMPLES[0]].size)
    found = about(arm, settings.get("tables", 1))
    return {
        "errors": errors[16].tolist(),
        "nmse": errors[16].tolist(),
        "by_samples": {str(n): values.tolist() for n, values in errors.items()},
        "expected": {str(n): expected_error(found["tangent_rank"], n) for n in SAMPLES}
        if found["holds_truth"]
        else None,
        "step_seconds": seconds,
        "activation_bytes": 0,
        "batch": 16,
        **found,
    }


def rotation_matrices(count: int) -> np.ndarray:
    """(count, 8, 8) matrices of M -> R M ~R on Cl(3), rotors of angles below pi."""
    import torch

    from geomix.algebra.operations import sandwich_matrix
    from geomix.studies.algebra.tasks import Draws, random_rotors
    from geomix.training.seeding import generator

    rotors = random_rotors(Draws(generator("algebra", "fixed_rotation"), count, 0), CL3, 1)[:, 0]
    return sandwich_matrix(CL3, rotors.to(torch.float64)).numpy()


def noisy_pairs(truth: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """x (rotations, n, 8), all grades standard normal, and y = R x ~R with noise of 0.05 on each component."""
    draws = np.random.default_rng(np.random.SeedSequence([n, len(truth)]))
    x = draws.standard_normal((len(truth), n, CL3.dim))
    return x, np.einsum("rkj,rnj->rnk", truth, x) + NOISE * draws.standard_normal(x.shape)


def expected_error(rank: int, n: int) -> float:
    """Theory for an arm that holds the truth: noise variance x free directions / equations, relative to the target's variance 1.

    Least squares spends one equation a direction; with N x 8 equations the expected squared error on fresh x of identity
    covariance is about sigma^2 rank / (8 N), exact as N grows (at N = 4 the design is far from its mean, and it is a lower bound).
    """
    return NOISE**2 * rank / (CL3.dim * n)


def about(arm: str, tables: int) -> dict[str, Any]:
    """Parameters, multiply-adds, ranks and tying of an arm's map; `holds_truth`: whether every rotation is among its maps."""
    dim = CL3.dim
    kind = arm.removesuffix("_4")
    terms = 4 if arm.endswith("_4") else 1
    plain = {  # parameters, dimension of the family of maps, its linear span, what is tied
        "dense": (64, 64, 64, "none: any 8 x 8 matrix (four times the budget: no smaller dense map exists)", True),
        "wide_dense": (
            352,
            352,
            64,
            "none: a matrix on the 8 components and their 36 products (22 times the budget)",
            True,
        ),
        "low_rank": (16, 15, 64, "none: a matrix of rank 1", False),
        "complex": (16, 14, 32, "complex numbers over (component, its dual): a complex matrix of rank 1", False),
        "quaternion": (
            16,
            14,
            32,
            "q -> A q B on the even part, and another on the odd part times the pseudoscalar",
            True,
        ),
        "grouped": (16, 16, 16, "none: four diagonal blocks of 2 x 2", False),
    }
    if kind in plain:
        parameters, rank, span, tying, holds = plain[kind]
        macs = 16 if arm == "grouped" else parameters if arm == "wide_dense" else dim * dim
        entries = [{"name": arm, "span": span, "of": dim**2}]
    else:
        found = tables_of(kind, CL3, tables)
        parameters, macs, holds = 16 * terms, dim * dim, kind in ("clifford", "gauge", "other_signature")
        rank = tangent_rank(found[0].triplets, terms)
        tying = f"one pair (A, B) for all grades, {terms} term{'s' if terms > 1 else ''}"
        entries = [
            {
                "name": t.name,
                "span": span_rank(t.triplets),
                "of": dim**2,
                "tangent_rank": tangent_rank(t.triplets, terms),
                "associator": associator_norm(t.triplets),
                **{f"anticommuting_grade{g}": anticommuting(t.triplets, CL3, g) for g in (1, 2)},
            }
            for t in found
        ]
    return {
        "parameters": parameters,
        "flops": 6 * macs,
        "widths": [],
        "tangent_rank": rank,
        "tying": tying,
        "tables": entries,
        "holds_truth": holds,
    }


def tangent_rank(table: SignedTriplets, terms: int) -> int:
    """Dimension of the family {x -> sum_t (A_t x) B_t} at a random point: what `terms` pairs can move in."""
    draws = np.random.default_rng(0)
    dense = table.dense()
    a, b = draws.standard_normal((2, terms, table.left))
    by_a = np.einsum("ijm,tl,mlk->tikj", dense, b, dense)
    by_b = np.einsum("ti,ijm,mlk->tlkj", a, dense, dense)
    both = np.concatenate((by_a, by_b)).reshape(2 * terms * table.left, -1)
    return int(np.linalg.matrix_rank(both, tol=1e-9 * np.linalg.norm(both)))


# -- the fits -----------------------------------------------------------------------------------------------------------------


def _errors(arm: str, x: np.ndarray, y: np.ndarray, truth: np.ndarray, tables: int) -> np.ndarray:
    """(tables, rotations) squared error relative to the target's variance."""
    kind, terms = arm.removesuffix("_4"), 4 if arm.endswith("_4") else 1
    if arm == "wide_dense":
        return _quadratic(x, y, truth)[None]
    if arm == "dense":
        return _distance(least_squares(x, y), truth)[None]
    if arm == "low_rank":
        return _distance(reduced_rank(x, y), truth)[None]
    if arm == "grouped":
        return _distance(_blocks(x, y), truth)[None]
    if arm == "complex":
        return _distance(_complex(x, y), truth)[None]
    if arm == "quaternion":
        return _distance(_quaternions(x, y), truth)[None]
    found = []
    for table in tables_of(kind, CL3, tables):
        t = table.signs.astype(float)
        matrix = alternating(table.triplets, x * t, y * t, terms)
        found.append(_distance(matrix * t[:, None] * t, truth))
    return np.stack(found)


def _distance(matrix: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return ((matrix - truth) ** 2).sum((-2, -1)) / truth.shape[-1]


def least_squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(B, out, in) matrices of the least-norm least-squares fit y = M x, for x (B, n, in) and y (B, n, out)."""
    return np.swapaxes(np.linalg.pinv(x) @ y, -1, -2)


def reduced_rank(x: np.ndarray, y: np.ndarray, rank: int = 1) -> np.ndarray:
    """(B, out, in) least-squares fit among matrices of a rank (reduced-rank regression, Izenman 1975); real or complex."""
    free = least_squares(x, y)
    fitted = x @ np.swapaxes(free, -1, -2)
    right = np.linalg.svd(fitted, full_matrices=False)[2][..., :rank, :]
    keep = np.swapaxes(right, -1, -2) @ right.conj()  # projector on the leading output directions
    return keep @ free


def alternating(
    table: SignedTriplets,
    x: np.ndarray,
    y: np.ndarray,
    terms: int = 1,
    starts: int = STARTS,
    iterations: int = ITERATIONS,
) -> np.ndarray:
    """(B, dim, dim) matrices of the best y = sum_t (A_t x) B_t found by alternating least squares from several starts."""
    dense, dim = table.dense(), table.out
    problems = len(x)
    q, r = np.linalg.qr(x)  # the fit sees x only through r and the targets through q^T y
    target = np.swapaxes(q, -1, -2) @ y
    x, y = np.tile(r, (starts, 1, 1)), np.tile(target, (starts, 1, 1))
    draws = np.random.default_rng(0)
    a, b = draws.standard_normal((2, starts * problems, terms, dim)) * 0.3
    a[:, 0, 0] += 1
    b[:, 0, 0] += 1
    left_x = np.einsum("ijm,znj->zinm", dense, x)  # e_i x
    for _ in range(iterations):
        right = np.einsum("ztl,mlk->ztmk", b, dense)
        design = np.einsum("zinm,ztmk->znkti", left_x, right, optimize=True)
        a = _solve(design, y)
        mixed = np.einsum("zti,zinm->ztnm", a, left_x, optimize=True)
        design = np.einsum("ztnm,mlk->znktl", mixed, dense, optimize=True)
        b = _solve(design, y)
        size = np.sqrt(
            np.linalg.norm(b, axis=-1, keepdims=True) / np.linalg.norm(a, axis=-1, keepdims=True).clip(1e-12)
        )
        a, b = a * size, b / size.clip(1e-12)
    maps = np.einsum("zti,ijm->ztmj", a, dense)
    matrix = np.einsum("ztl,mlk,ztmj->zkj", b, dense, maps, optimize=True)
    misfit = ((np.einsum("zkj,znj->znk", matrix, x) - y) ** 2).sum((-2, -1)).reshape(starts, problems)
    return matrix.reshape(starts, problems, dim, dim)[misfit.argmin(0), np.arange(problems)]


def _solve(design: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least squares for coefficients (z, t, i) of design (z, n, k, t, i) and y (z, n, k); a trace of ridge keeps it solvable."""
    z, n, k, t, i = design.shape
    flat = design.reshape(z, n * k, t * i)
    gram = np.swapaxes(flat, -1, -2) @ flat
    ridge = 1e-9 * np.trace(gram, axis1=-2, axis2=-1)[:, None, None] / (t * i) + 1e-300
    right = np.swapaxes(flat, -1, -2) @ y.reshape(z, n * k, 1)
    return np.linalg.solve(gram + ridge * np.eye(t * i), right).reshape(z, t, i)


def _blocks(x: np.ndarray, y: np.ndarray, size: int = 2) -> np.ndarray:
    matrix = np.zeros((len(x), CL3.dim, CL3.dim))
    for start in range(0, CL3.dim, size):
        block = slice(start, start + size)
        matrix[:, block, block] = least_squares(x[..., block], y[..., block])
    return matrix


def _complex(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    even, odd, sign = dual_pairs(CL3)
    matrix = reduced_rank(*(m[..., even] + 1j * sign * m[..., odd] for m in (x, y)))
    out = np.zeros((len(x), CL3.dim, CL3.dim))
    out[:, even[:, None], even] = matrix.real
    out[:, even[:, None], odd] = -matrix.imag * sign
    out[:, odd[:, None], even] = matrix.imag * sign[:, None]
    out[:, odd[:, None], odd] = matrix.real * sign[:, None] * sign
    return out


def _quaternions(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    even, odd, sign = dual_pairs(CL3)
    table = CL3.even.product()
    out = np.zeros((len(x), CL3.dim, CL3.dim))
    out[:, even[:, None], even] = alternating(table, x[..., even], y[..., even])
    turned = alternating(table, x[..., odd] * sign, y[..., odd] * sign)
    out[:, odd[:, None], odd] = turned * sign[:, None] * sign
    return out


def _quadratic(x: np.ndarray, y: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Least-norm fit on the components and their pairwise products, judged on fresh samples."""
    i, j = np.triu_indices(CL3.dim)
    features = lambda v: np.concatenate((v, v[..., i] * v[..., j]), -1)
    matrix = least_squares(features(x), y)
    fresh = np.random.default_rng(1).standard_normal((TEST_SAMPLES, CL3.dim))
    predicted = np.einsum("rkf,nf->rnk", matrix, features(fresh))
    wanted = np.einsum("rkj,nj->rnk", truth, fresh)
    return ((predicted - wanted) ** 2).mean((-2, -1))
