import math

import numpy as np
import pytest
import torch

from geomix.algebra import Algebra
from geomix.algebra import operations as op

from . import oracle


def random(algebra, *shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, algebra.dim, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def random_versor(algebra, factors, seed=0):
    """Product of `factors` random vectors that are not near the null cone, in the full layout."""
    full, generator = algebra.full, torch.Generator().manual_seed(seed)
    versor = torch.eye(full.dim, dtype=torch.float64)[0]
    while factors:
        vector = torch.zeros(full.dim, dtype=torch.float64)
        vector[full.slice(1)] = torch.randn(full.n, dtype=torch.float64, generator=generator)
        if abs(op.sq_norm(full, vector)) > 0.5:
            versor, factors = op.product(full, versor, vector), factors - 1
    return versor


@pytest.mark.parametrize("signature", oracle.SIGNATURES)
def test_products_norms_and_projections_agree_with_clifford(signature):
    algebra = Algebra(*signature)
    a, b = random(algebra, 3), random(algebra, 3, seed=1)
    for name in ("geometric", "wedge", "inner", "left_contraction"):
        expected = np.array([oracle.multiply(algebra, x, y, name) for x, y in zip(a.numpy(), b.numpy(), strict=True)])
        np.testing.assert_allclose(op.product(algebra, a, b, name), expected, atol=1e-13)
    for m in a:
        theirs = oracle.to_clifford(algebra, m.numpy())
        np.testing.assert_allclose(op.norm(algebra, m), abs(theirs), atol=1e-13)
        np.testing.assert_allclose(op.reverse(algebra, m), oracle.from_clifford(algebra, ~theirs))
        np.testing.assert_allclose(op.project(algebra, m, 1), oracle.from_clifford(algebra, theirs(1)))


@pytest.mark.parametrize("n,k,associative", [(3, 3, True), (4, 4, True), (4, 3, False), (5, 3, False)])
def test_associator_vanishes_for_full_algebras_only(n, k, associative):
    algebra = Algebra.truncated(n, k)
    size = op.associator(algebra, *(random(algebra, 50, seed=s) for s in range(3))).abs().amax()
    assert size < 1e-12 if associative else size > 1


@pytest.mark.parametrize("signature", oracle.SIGNATURES)
@pytest.mark.parametrize("factors", [1, 2, 3])
def test_sandwich_is_the_products_written_out_and_clifford_agrees(signature, factors):
    algebra = Algebra(*signature)
    if not signature[0] + signature[1]:
        pytest.skip("no invertible vector")
    v, m = random_versor(algebra, factors), random(algebra, 1)[0]
    theirs, their_m = oracle.to_clifford(algebra, v.numpy()), oracle.to_clifford(algebra, m.numpy())
    expected = theirs * (their_m.gradeInvol() if factors % 2 else their_m) * theirs.inv()
    ours = op.sandwich(algebra, v, m)
    np.testing.assert_allclose(ours, oracle.from_clifford(algebra, expected), atol=1e-9)
    np.testing.assert_allclose(op.versor_inverse(algebra, v), oracle.from_clifford(algebra, theirs.inv()), atol=1e-10)


@pytest.mark.parametrize("signature", [(4, 0, 0), (1, 3, 0), (3, 0, 1), (5, 0, 0)])
def test_sandwich_keeps_grades_norms_and_products_also_when_truncated(signature):
    full = Algebra(*signature)
    truncated = Algebra(*signature, (0, 1, 2))
    for factors in (1, 2, 3):
        v = random_versor(full, factors, seed=factors)
        a, b = random(full, 1)[0], random(full, 1, seed=1)[0]
        turned = op.sandwich(full, v, a)
        for grade in full.grades:
            np.testing.assert_allclose(
                op.sandwich(full, v, op.project(full, a, grade)), op.project(full, turned, grade), atol=1e-9
            )
        np.testing.assert_allclose(op.sq_norm(full, turned), op.sq_norm(full, a), atol=1e-8)
        wedge = op.product(full, a, b, "wedge")
        np.testing.assert_allclose(
            op.sandwich(full, v, wedge), op.product(full, turned, op.sandwich(full, v, b), "wedge"), atol=1e-8
        )
        small = op.convert(full, truncated, a)
        np.testing.assert_allclose(op.sandwich(truncated, v, small), op.convert(full, truncated, turned), atol=1e-10)


@pytest.mark.parametrize("signature", [(3, 0, 0), (1, 3, 0), (3, 0, 1)])
def test_norm_has_finite_gradients_and_no_epsilon(signature):
    """kornia #3949, geoopt #243: sqrt(0) behind where gives NaN. CEGNN: norm(1e-6) came out as 1e-4."""
    algebra = Algebra(*signature)
    m = torch.zeros(2, algebra.dim, dtype=torch.float64, requires_grad=True)
    op.norm(algebra, m).sum().backward()
    assert (m.grad == 0).all()
    tiny = torch.zeros(algebra.dim)
    tiny[algebra.slice(1)] = 1e-6
    expected = math.sqrt(abs(sum(algebra.metric.tolist()))) * 1e-6
    assert op.norm(algebra, tiny).item() == pytest.approx(expected, rel=1e-6)
    a = random(algebra, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: op.norm(algebra, x), a)


def test_blades_are_recognised_and_sums_of_blades_need_not_be_blades():
    for n, grade in [(4, 2), (5, 2), (5, 3), (6, 2), (6, 3), (6, 4)]:
        algebra = Algebra(n)
        vectors = torch.zeros(20, grade, algebra.dim, dtype=torch.float64)
        vectors[..., algebra.slice(1)] = torch.randn(20, grade, n, dtype=torch.float64)
        blade = vectors[:, 0]
        for factor in range(1, grade):
            blade = op.product(algebra, blade, vectors[:, factor], "wedge")
        assert op.is_blade(algebra, blade, grade).all()
        assert op.is_blade(algebra, blade.float(), grade, 1e-4).all()
        assert not op.is_blade(algebra, blade + blade.roll(1, 0), grade).any()
    # every element of grade 0, 1, n-1 and n is one
    algebra = Algebra(4)
    assert all(op.is_blade(algebra, random(algebra, 5), grade).all() for grade in (0, 1, 3, 4))
    # the smallest example: e12 + e34
    m = torch.zeros(algebra.dim)
    m[algebra.index("e12")] = m[algebra.index("e34")] = 1
    assert not op.is_blade(algebra, m, 2)
    m[algebra.index("e34")] = 0
    assert op.is_blade(algebra, m, 2)
    assert op.is_blade(algebra, torch.zeros(algebra.dim), 2)
    # decomposability does not depend on the metric: e12 + e13 = e1 ^ (e2 + e3) even when e1 is null
    degenerate = Algebra(3, 0, 1)
    m = torch.zeros(degenerate.dim)
    m[degenerate.index("e14")] = m[degenerate.index("e24")] = 1
    assert op.is_blade(degenerate, m, 2)


def test_blade_test_agrees_with_the_factorisation_rank():
    """A bivector is a blade iff its antisymmetric matrix has rank 2 (an independent criterion)."""
    algebra = Algebra(5)
    rows, columns = np.triu_indices(5, 1)
    for rank in (2, 4):
        m = torch.zeros(30, algebra.dim, dtype=torch.float64)
        basis = np.random.default_rng(rank).normal(size=(30, rank, 5))
        matrix = sum(
            basis[:, i, :, None] * basis[:, i + 1, None, :] - basis[:, i + 1, :, None] * basis[:, i, None, :]
            for i in range(0, rank, 2)
        )
        assert (np.linalg.matrix_rank(matrix) == rank).all()
        m[:, algebra.slice(2)] = torch.as_tensor(matrix[:, rows, columns])
        assert (op.is_blade(algebra, m, 2) == (rank == 2)).all()


def test_attention_breaks_decomposability():
    """An average of blades (what softmax weights make of blade-valued values) is in general no blade for n >= 4."""
    algebra = Algebra(4)
    a, b = torch.zeros(2, 8, algebra.dim, dtype=torch.float64)
    a[:, algebra.slice(1)], b[:, algebra.slice(1)] = torch.randn(2, 8, 4, dtype=torch.float64)
    values = op.product(algebra, a, b, "wedge")
    weights = torch.softmax(torch.randn(8, 8, dtype=torch.float64), -1)
    assert op.is_blade(algebra, values, 2).all()
    assert not op.is_blade(algebra, weights @ values, 2).any()


def test_any_floating_dtype_is_accepted():
    """cliffordlayers' embed and CEGNN reject float64."""
    algebra = Algebra(3)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        a = random(algebra, 2, dtype=dtype) if dtype != torch.bfloat16 else random(algebra, 2).bfloat16()
        assert op.product(algebra, a, a).dtype == op.norm(algebra, a).dtype == dtype


def test_a_grade_that_does_not_exist_is_refused_and_one_that_is_not_retained_is_zero():
    algebra = Algebra(3, grades=(0, 1))
    assert (op.project(algebra, torch.ones(4), 2) == 0).all()
    with pytest.raises(ValueError, match="grade 9"):
        op.project(algebra, torch.ones(4), 9)
