"""Numbers at the edges: reduced precision, NaN, degenerate metrics, tiny ranks, thin pairs."""

import math

import pytest
import torch

from geomix.algebra import Algebra, operations, rotors
from geomix.algebra.pair_product import PAIR_KINDS, SMALL, PairProduct, product_of_kind

HALF = [torch.bfloat16, torch.float16]
EPS = {torch.bfloat16: 2**-8, torch.float16: 2**-11}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("signature", [(3,), (4,), (5,), (3, 0, 1), (1, 3), (3, 3)])
def test_exp_of_reduced_precision_is_one_rounding_from_fp64(signature, dtype):
    """matrix_exp has no answer in bf16 and fp16 for n >= 4, and e^x passes fp16's squares."""
    algebra = Algebra(*signature)
    b = (0.7 * torch.randn(20, algebra.n * (algebra.n - 1) // 2)).to(dtype).requires_grad_()
    rotor = rotors.exp(algebra, b)
    exact = rotors.exp(algebra, b.detach().double())
    assert rotor.dtype == dtype
    assert ((rotor.double() - exact).abs() <= EPS[dtype] * exact.abs() + 1e-5 * exact.abs().amax()).all()
    (gradient,) = torch.autograd.grad(rotor.sum(), b)
    assert gradient.dtype == dtype and gradient.isfinite().all()


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("signature", [(3,), (4,), (2, 1)])
def test_log_of_reduced_precision_takes_rotors_and_nothing_else(signature, dtype):
    algebra = Algebra(*signature)
    b = 0.4 * torch.randn(10, algebra.n * (algebra.n - 1) // 2, generator=torch.Generator().manual_seed(0))
    back = rotors.log(algebra, rotors.exp(algebra, b).to(dtype))
    assert back.dtype == dtype and (back.float() - b).abs().max() < 8 * EPS[dtype]
    one = torch.eye(algebra.even.dim)[0]
    for wrong in (2 * one, 0 * one, -one, one + 0.5, torch.full_like(one, torch.nan), 1.3 * rotors.exp(algebra, b[0])):
        with pytest.raises(ValueError, match="no bivector logarithm"):
            rotors.log(algebra, wrong.to(dtype))


@pytest.mark.parametrize("signature", [(3,), (4,), (3, 0, 1)])
def test_nan_stays_nan_in_rotors_norms_and_inverses(signature):
    algebra = Algebra(*signature)
    m = torch.ones(2, algebra.dim)
    m[0, 1] = torch.nan
    norm = operations.norm(algebra, m)
    assert norm[0].isnan() and norm[1].isfinite()
    assert operations.versor_inverse(algebra, m)[0].isnan().all()
    b = torch.zeros(2, algebra.n * (algebra.n - 1) // 2)
    b[0, 0] = torch.nan
    rotor = rotors.exp(algebra, b)
    assert rotor[0].isnan().any() and rotor[1].isfinite().all()
    assert operations.safe_sqrt(torch.tensor([torch.nan, -1.0, 0.0, 4.0])).tolist()[1:] == [0, 0, 2]
    assert operations.safe_sqrt(torch.tensor(torch.nan)).isnan()


@pytest.mark.parametrize("kind", PAIR_KINDS)
@pytest.mark.parametrize("r", [3, 8, 32])
def test_nan_stays_nan_in_pair_norms(kind, r):
    f = product_of_kind(kind, r, 1)
    a = torch.ones(2, r)
    a[0, 1] = torch.nan
    b = torch.arange(1.0, r + 1).expand(2, r)
    for value in (f.norm(a, b), f.sq_norm(a, b), f.normaliser(a, b)):
        assert value[0].isnan() and value[1].isfinite()


@pytest.mark.parametrize(
    "signature,name",
    [((3, 0, 1), "e4"), ((1, 1), "e1 + e2"), ((1, 3), "e1 + e2"), ((2, 2), "e1 + e3"), ((3,), "0")],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
def test_the_inverse_of_a_null_versor_is_infinite(signature, name, dtype):
    algebra = Algebra(*signature)
    v = torch.zeros(algebra.dim, dtype=dtype)
    for part in name.split(" + ") if name != "0" else ():
        v[algebra.index(part)] = 2
    inverse = operations.versor_inverse(algebra, v)
    assert inverse.dtype == dtype and inverse.isinf().all()


@pytest.mark.parametrize("dtype", HALF)
def test_norms_of_reduced_precision_square_in_fp32(dtype):
    """300^2 is no fp16 number, and bf16 sums of 16 squares lose their last terms."""
    for signature in ((3,), (3, 0, 1), (1, 3)):
        algebra = Algebra(*signature)
        m = (300 * torch.randn(40, algebra.dim)).to(dtype)
        exact = operations.norm(algebra, m.double())
        assert ((operations.norm(algebra, m).double() - exact).abs() <= 2 * EPS[dtype] * exact).all()
        inverse = operations.versor_inverse(algebra, (m / 300))
        exact = operations.versor_inverse(algebra, (m / 300).double())
        sure = operations.sq_norm(algebra, (m / 300).double()).abs() > 0.1
        assert ((inverse.double() - exact).abs() <= 2 * EPS[dtype] * exact.abs() + 1e-3)[sure].all()


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_pair_norms_of_reduced_precision_are_one_rounding_from_exact(kind, dtype):
    f = product_of_kind(kind, 12, 1)
    a, b = (30 * torch.randn(2, 50, 12)).to(dtype)
    exact = f(a.double(), b.double()).norm(dim=-1)
    assert ((f.norm(a, b).double() - exact).abs() <= 2 * EPS[dtype] * exact).all()
    floor = f.normaliser(torch.zeros(12, dtype=dtype), torch.zeros(12, dtype=dtype))
    assert floor > 0 and floor.dtype == dtype  # 1e-12, eps squared, is 0 in fp16


def pairs(r: int, angle: float, count: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(r)
    a, other = torch.randn(2, count, r, generator=g, dtype=torch.float64)
    other -= (other * a).sum(-1, keepdim=True) / a.square().sum(-1, keepdim=True) * a
    other *= a.norm(dim=-1, keepdim=True) / other.norm(dim=-1, keepdim=True)
    return a.float(), (math.cos(angle) * a + math.sin(angle) * other).float()


@pytest.mark.parametrize("r", range(2, SMALL))
@pytest.mark.parametrize("kind", PAIR_KINDS)
@pytest.mark.parametrize("swapped", [False, True])
def test_norm_and_gradients_below_rank_8_are_the_coordinates_to_rounding(kind, r, swapped):
    """The closed forms cancelled: gradients of symmetric r = 2 off by 17 %, norms of signed r = 3 on thin pairs by 2e-3."""
    if kind == "signed" and r < 3:
        pytest.skip("every sign table of rank 2 is the wedge")
    f = product_of_kind(kind, r, 1)
    f = f.swap() if swapped else f
    for angle in (1.0, 0.1, 1e-2):
        for dtype, bound in ((torch.float32, 4e-7), (torch.float64, 1e-15)):
            found, exact = [], []
            for values, norm, kept in (
                (found, lambda x, y: f.norm(x, y), dtype),
                (exact, lambda x, y: f(x, y).norm(dim=-1), torch.float64),
            ):
                a, b = (x.to(kept).requires_grad_() for x in pairs(r, angle))
                value = norm(a, b)
                values += [value, *torch.autograd.grad(value.sum(), (a, b))]
            # a coordinate a_i b_j - a_j b_i of a thin pair is rounding of its terms in any form: scale by them
            a, b = (x.double() for x in pairs(r, angle))
            sizes = a.norm(dim=-1) * b.norm(dim=-1), b.norm(dim=-1, keepdim=True), a.norm(dim=-1, keepdim=True)
            norms = exact[0] / sizes[0]
            for index, (x, y, size) in enumerate(zip(found, exact, sizes, strict=True)):
                # the gradient is a direction: its error is the coordinates' over the norm
                scale = norms if index == 0 else (norms / 2).unsqueeze(-1)
                error = (x.double() - y).abs() / size
                assert (error * (scale if index else 1)).max() < 8 * bound, (angle, dtype, index)


@pytest.mark.parametrize("r", [2, 5, 7])
@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_gradients_of_small_ranks_pass_gradcheck(kind, r):
    if kind == "signed" and r < 3:
        pytest.skip("every sign table of rank 2 is the wedge")
    f = product_of_kind(kind, r, 1)
    a, b = (torch.randn(4, r, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for function in (f.norm, f.sq_norm, f.normaliser):
        assert torch.autograd.gradcheck(function, (a, b))


def test_symmetric_rank_2_is_its_single_coordinate():
    f = PairProduct.symmetric(2)
    a = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    b = torch.randn(1000, 2, generator=torch.Generator().manual_seed(1))
    norm = f.norm(a, b)
    (gradient,) = torch.autograd.grad(norm.sum(), a)
    coordinate = (a[:, 0].double() * b[:, 1].double() + a[:, 1].double() * b[:, 0].double()).detach()
    expected = coordinate.sign().unsqueeze(1) * b.double().flip(1)
    assert ((norm.double() - coordinate.abs()).abs() <= 3e-7 * b.norm(dim=-1) * a.norm(dim=-1)).all()
    sure = coordinate.abs() > 1e-5
    torch.testing.assert_close(gradient.double()[sure], expected[sure], rtol=1e-6, atol=1e-6)


def test_a_dot_product_beside_random_signs_keeps_its_norm_at_any_rank():
    for r in (4, 9):
        signed = PairProduct.signed(r, 0)
        triplets = tuple((i, i, 0, 1) for i in range(r)) + tuple((i, j, k + 1, s) for i, j, k, s in signed.triplets)
        f = PairProduct(r, signed.out_dim + 1, triplets)
        a, b = torch.randn(2, 20, r, dtype=torch.float64)
        torch.testing.assert_close(f.norm(a, b), f(a, b).norm(dim=-1))
