"""The Clifford kind of PairProduct: the same mechanism as Plücker features, with another table."""

import numpy as np
import pytest
import torch

from geomix.algebra import Algebra, operations
from geomix.algebra.pair_product import PairProduct
from geomix.kernels.pair_features import pair_mix
from geomix.kernels.product import product

from . import oracle

CASES = [(3, 0, 0, None), (4, 0, 0, (0, 1, 2, 3)), (1, 3, 0, None), (3, 0, 1, (0, 1, 2)), (1, 1, 1, None)]


def vectors(f, *shape, seed=0):
    return torch.randn(*shape, f.in_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("p,q,r,grades", CASES)
def test_value_swap_and_norm(p, q, r, grades):
    f = PairProduct.clifford(p, q, r, grades)
    a, b = vectors(f, 4), vectors(f, 4, seed=1)
    algebra = Algebra(p, q, r, grades)
    expected = np.array([oracle.multiply(algebra, x, y) for x, y in zip(a.numpy(), b.numpy(), strict=True)])
    np.testing.assert_allclose(f(a, b), expected, atol=1e-13)
    torch.testing.assert_close(f.swap()(a, b), f(b, a))
    torch.testing.assert_close(f.sq_norm(a, b), f(a, b).square().sum(-1))
    assert f.pair_terms is None and f.table == algebra.product()
    torch.testing.assert_close(product(f.table, a, b), f(a, b))


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("p,q,r,grades", CASES)
def test_anchored_form_is_exact_for_multivectors(p, q, r, grades, two_sided):
    """Only linearity in the first argument is used, so the rewrite holds for truncated and indefinite tables too."""
    f = PairProduct.clifford(p, q, r, grades)
    z, weight = vectors(f, 2, 9), torch.randn(5, f.out_dim, dtype=torch.float64)
    mask = torch.arange(9) < torch.tensor([[9], [6]])
    results = []
    for form in ("paper", "anchored"):
        leaves = [z.clone().requires_grad_(), weight.clone().requires_grad_()]
        g, count = pair_mix(f, *leaves, mask, (1, 3), two_sided=two_sided, form=form)
        results.append([g, *torch.autograd.grad(g.square().sum(), leaves)])
    for paper, anchored in zip(*results, strict=True):
        torch.testing.assert_close(anchored, paper, atol=1e-10, rtol=1e-10)


def test_pluecker_coordinates_are_the_bivector_part_of_the_geometric_product():
    """Grade-1 elements of Cl(r): ab = a.b + sum_{i<j} (a_i b_j - a_j b_i) e_ij. One object, three constructors."""
    r = 5
    algebra = Algebra(r)
    a, b = torch.randn(2, 7, r, dtype=torch.float64)
    lift = lambda v: torch.zeros(7, algebra.dim, dtype=torch.float64).index_copy(1, torch.arange(1, r + 1), v)
    whole = operations.product(algebra, lift(a), lift(b))
    torch.testing.assert_close(whole[:, algebra.slice(2)], PairProduct.wedge(r)(a, b))
    torch.testing.assert_close(whole[:, 0], (a * b).sum(-1))
    torch.testing.assert_close(torch.cat((whole[:, :1], whole[:, algebra.slice(2)]), 1), PairProduct.geometric(r)(a, b))
    # the symmetric control is the same part of the untwisted (all-plus) table
    untwisted = operations.bilinear(algebra.product().untwisted(), lift(a), lift(b))
    torch.testing.assert_close(untwisted[:, algebra.slice(2)], PairProduct.symmetric(r)(a, b))


@pytest.mark.parametrize("n,size", [(2, 3), (3, 4), (4, 6), (5, 12)])
def test_norm_of_a_product_from_one_number_per_token(n, size):
    algebra = Algebra(n)
    a, b = (
        torch.randn(200, algebra.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in (0, 1)
    )
    left, right = operations.gram_parts(algebra, a, b)
    assert left.shape == (200, size)
    truth = operations.product(algebra, a, b).square().sum(-1)
    torch.testing.assert_close((left * right).sum(-1), truth, rtol=1e-13, atol=0)
    left, right = operations.gram_parts(algebra, a.float(), b.float())
    bound = 60 * 6e-8 * a.square().sum(-1) * b.square().sum(-1) * algebra.dim**0.5
    assert (((left * right).sum(-1) - truth).abs() < bound).all()
    # whole elements, not only the kept grades: nothing else survives
    for m in (operations.product(algebra, operations.reverse(algebra, a), a), operations.product(algebra, b, operations.reverse(algebra, b))):  # fmt: skip
        assert m[:, algebra.reversion < 0].abs().max() < 1e-12
    with pytest.raises(ValueError, match="full Euclidean"):
        operations.gram_parts(Algebra(1, 3), a, b)


def test_unreachable_coordinates_end_in_a_sentence():
    with pytest.raises(ValueError, match="reaches its coordinates e1, e2, e3"):
        PairProduct.clifford(3, grades=(1,))
