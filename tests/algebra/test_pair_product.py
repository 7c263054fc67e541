"""PairProduct against explicit coordinates, the `clifford` package and the closed forms' stated error bounds."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from geomix.algebra.pair_product import PAIR_KINDS, PairProduct, is_gauge_wedge, product_of_kind

E32 = 6e-8  # half the spacing of fp32 at 1


def coordinates(kind: str, a: np.ndarray, b: np.ndarray, signs: np.ndarray | None = None) -> np.ndarray:
    """The definition, written as loops over one pair of vectors."""
    pairs = list(itertools.combinations(range(len(a)), 2))
    if kind == "geometric":
        return np.array([sum(a * b)] + [a[i] * b[j] - a[j] * b[i] for i, j in pairs])
    s = {"wedge": lambda i, j: -1, "symmetric": lambda i, j: 1, "signed": lambda i, j: signs[i, j]}[kind]
    return np.array([a[i] * b[j] + s(i, j) * a[j] * b[i] for i, j in pairs])


def pairs_at_angle(angle: float, r: int = 32, count: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors with the given angle between them, of norms between 0.1 and 10."""
    g = torch.Generator().manual_seed(1)
    a, other = torch.randn(2, count, r, generator=g, dtype=torch.float64)
    other -= (other * a).sum(-1, keepdim=True) / a.square().sum(-1, keepdim=True) * a
    other *= a.norm(dim=-1, keepdim=True) / other.norm(dim=-1, keepdim=True)
    size = 10 ** (2 * torch.rand(2, count, 1, generator=g, dtype=torch.float64) - 1)
    return a * size[0], (np.cos(angle) * a + np.sin(angle) * other) * size[1]


@pytest.mark.parametrize("r", [3, 8, 13])
@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_coordinates_are_the_definition(kind, r):
    f = product_of_kind(kind, r, seed=5)
    a, b = np.random.default_rng(0).standard_normal((2, r))
    expected = coordinates(kind, a, b, f.sign_table)
    np.testing.assert_allclose(f(torch.tensor(a), torch.tensor(b)).numpy(), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("kind", "features"), [("wedge", 496), ("symmetric", 496), ("signed", 496), ("geometric", 497)]
)
def test_number_of_features_at_rank_32(kind, features):
    assert product_of_kind(kind, 32).out_dim == features


def test_worked_example_of_the_article():
    p = PairProduct.wedge(3)(torch.tensor([1.0, 0, 0]), torch.tensor([1.0, 1, 0]))
    assert p.tolist() == [1, 0, 0]


def test_geometric_is_cliffords_product_of_vectors():
    clifford = pytest.importorskip("clifford")
    layout, _ = clifford.Cl(4)
    a, b = np.random.default_rng(1).standard_normal((2, 4))
    basis = layout.basis_vectors_lst
    product = sum(x * e for x, e in zip(a, basis, strict=True)) * sum(x * e for x, e in zip(b, basis, strict=True))
    expected = [float(product(0))] + [
        product.value[layout.bitmap_to_index[(1 << i) | (1 << j)]]
        if hasattr(layout, "bitmap_to_index")
        else product[i + 1, j + 1]
        for i, j in itertools.combinations(range(4), 2)
    ]
    np.testing.assert_allclose(PairProduct.geometric(4)(torch.tensor(a), torch.tensor(b)).numpy(), expected, atol=1e-14)


@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_swap_exchanges_the_arguments(kind):
    f = product_of_kind(kind, 7, seed=2)
    a, b = torch.randn(2, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(f.swap()(a, b), f(b, a), rtol=0, atol=1e-15)
    assert f.swap().swap() == f
    per_coordinate = {"wedge": -1, "symmetric": 1}.get(kind)
    if kind == "signed":  # a sign per coordinate, not one scalar
        i, j = np.triu_indices(7, 1)
        per_coordinate = torch.tensor(f.sign_table[i, j])
        assert set(per_coordinate.tolist()) == {-1, 1}
    if kind == "geometric":
        per_coordinate = torch.tensor([1] + [-1] * 21)
    torch.testing.assert_close(f.swap()(a, b), per_coordinate * f(a, b), rtol=0, atol=1e-15)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("r", [3, 32])
@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_closed_norm_is_the_norm_of_the_coordinates(kind, r, swapped):
    f = product_of_kind(kind, r, seed=3)
    f = f.swap() if swapped else f
    assert f.pair_terms is not None
    for angle in (1.0, 0.1, 1e-3):
        a, b = pairs_at_angle(angle, r)
        explicit = f(a, b).norm(dim=-1)
        scale = a.norm(dim=-1) * b.norm(dim=-1)
        assert ((f.norm(a, b) - explicit).abs() / scale).max() < 1e-12


@pytest.mark.parametrize("angle", [1.0, 1e-1, 1e-2, 1e-3, 1e-4])
def test_fp32_norms_keep_their_stated_bounds(angle):
    a, b = (x.float() for x in pairs_at_angle(angle))
    A_B = (a.double().square().sum(-1) * b.double().square().sum(-1)).double()
    exact = {kind: product_of_kind(kind, 32, 4)(a.double(), b.double()).square().sum(-1) for kind in PAIR_KINDS}
    found = {kind: product_of_kind(kind, 32, 4).sq_norm(a, b).double() for kind in PAIR_KINDS}
    error = {kind: (found[kind] - exact[kind]).abs() for kind in PAIR_KINDS}
    # the exact norm is that of the fp32 inputs, so the sine is theirs too
    sine = (exact["wedge"] / A_B).sqrt()
    assert (error["wedge"] / exact["wedge"] * sine).max() < 60 * E32
    assert (error["geometric"] / exact["geometric"]).max() < 60 * E32
    assert (error["symmetric"] / A_B).max() < 60 * E32
    assert (error["signed"] / A_B).max() < 60 * 32 * E32


def test_the_bare_lagrange_difference_would_break_the_wedges_bound():
    a, b = (x.float() for x in pairs_at_angle(1e-3))
    exact = PairProduct.wedge(32)(a.double(), b.double()).square().sum(-1)
    lagrange = a.square().sum(-1) * b.square().sum(-1) - (a * b).sum(-1).square()
    assert ((lagrange.double() - exact).abs() / exact).median() > 1e-2
    assert ((PairProduct.wedge(32).sq_norm(a, b).double() - exact).abs() / exact).max() < 4e-3


@pytest.mark.parametrize("kind", PAIR_KINDS)
@pytest.mark.parametrize("case", ["zero", "one zero", "equal", "opposite", "one axis"])
def test_norm_and_normaliser_are_finite_with_finite_gradients(kind, case):
    f = product_of_kind(kind, 8, 1)
    a = torch.randn(8)
    a, b = {
        "zero": (a * 0, a * 0),
        "one zero": (a * 0, a),
        "equal": (a, a.clone()),
        "opposite": (a, -a),
        "one axis": (torch.eye(8)[0], torch.eye(8)[0]),
    }[case]
    for norm in (f.norm, f.normaliser):
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        value = norm(x, y)
        assert value.isfinite() and value >= 0
        for gradient in torch.autograd.grad(value, (x, y)):
            assert gradient.isfinite().all()
    assert f.normaliser(a, b) >= max(1e-3 * float(a.norm() * b.norm()), 1e-6) * (1 - 1e-5)


@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_norm_gradients(kind):
    f = product_of_kind(kind, 5, 1)
    a, b = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    assert torch.autograd.gradcheck(f.norm, (a, b)) and torch.autograd.gradcheck(f, (a, b))


def test_signed_tables_are_drawn_from_the_seed_and_never_the_wedge_in_disguise():
    assert PairProduct.signed(32, 7) == PairProduct.signed(32, 7) != PairProduct.signed(32, 8)
    tables = [PairProduct.signed(3, seed).sign_table for seed in range(40)]  # half of all draws at r = 3 are disguised
    assert not any(is_gauge_wedge(table) for table in tables)
    assert len({table.tobytes() for table in tables}) == 4  # all the others occur
    with pytest.raises(ValueError, match="r = 2"):
        PairProduct.signed(2, 0)


def test_a_gauge_equivalent_table_is_recognised_and_is_the_wedge_of_changed_coordinates():
    t = np.array([1, -1, -1, 1, -1])
    signs = -np.outer(t, t)
    np.fill_diagonal(signs, 0)
    assert is_gauge_wedge(signs)
    a, b = torch.randn(2, 5, dtype=torch.float64)
    i, j = np.triu_indices(5, 1)
    disguised = PairProduct.from_signs(signs)(a, b)
    torch.testing.assert_close(disguised, torch.tensor(t)[j] * PairProduct.wedge(5)(a, torch.tensor(t) * b))
    signs[0, 1] = signs[1, 0] = -signs[0, 1]
    assert not is_gauge_wedge(signs)


def test_any_table_of_triplets_is_a_product():
    complex_product = PairProduct(2, 2, ((0, 0, 0, 1), (1, 1, 0, -1), (0, 1, 1, 1), (1, 0, 1, 1)))
    a, b = torch.randn(2, 6, 2, dtype=torch.float64)
    expected = torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b))
    torch.testing.assert_close(complex_product(a, b), expected)
    assert complex_product.pair_terms is None
    torch.testing.assert_close(complex_product.norm(a, b), a.norm(dim=-1) * b.norm(dim=-1))


def test_terms_in_any_order_of_output_and_count():
    product = PairProduct(3, 4, ((0, 1, 2, -1), (2, 2, 0, 1), (1, 0, 2, 1), (0, 0, 2, 1), (1, 1, 1, 1), (2, 0, 3, -1)))
    a, b = torch.tensor([2.0, 3, 5]), torch.tensor([7.0, 11, 13])
    assert product(a, b).tolist() == [65, 33, 2 * 7 - 2 * 11 + 3 * 7, -35]


def test_products_are_immutable_values():
    f = PairProduct.wedge(4)
    assert f == PairProduct(4, 6, tuple(reversed(f.triplets))) and hash(f) == hash(PairProduct.wedge(4))
    with pytest.raises(dataclasses.FrozenInstanceError):
        f.out_dim = 7


@pytest.mark.parametrize(
    "triplets", [((0, 5, 0, 1),), ((0, 0, 0, 2),), ((0, 0, 0, 1.9),), ((0, 0, 0, 1), (0, 0, 0, -1))]
)
def test_tables_that_make_no_sense_are_refused(triplets):
    with pytest.raises(ValueError, match="triplet"):
        PairProduct(2, 1, triplets)


@pytest.mark.parametrize("length", [3, 5])
@pytest.mark.parametrize("f", [PairProduct.wedge(4), PairProduct.geometric(4), PairProduct.clifford(2)])
def test_vectors_of_another_length_are_refused(f, length):
    right, wrong = torch.ones(2, 4), torch.ones(2, length)
    for use in (f, f.sq_norm, f.norm, f.normaliser):
        for a, b in ((wrong, right), (right, wrong)):
            with pytest.raises(ValueError, match=f"vectors of 4 numbers, got {length}"):
                use(a, b)
