import math

import numpy as np
import pytest
import scipy.linalg
import torch

from geomix.algebra import Algebra, operations, rotors

from . import oracle

MORE = [(1, 1, 0), (2, 0, 1), (2, 2, 0), (2, 0, 2), (6, 0, 0), (3, 3, 0)]
SIGNATURES = list(dict.fromkeys([*oracle.SIGNATURES, *MORE]))


def bivectors(algebra, count, scale, seed=0):
    planes = algebra.n * (algebra.n - 1) // 2
    return torch.randn(count, planes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * scale


def expm_of_left_multiplication(algebra, bivector):
    """exp(B) by scipy's expm of M[k, j] = sum_i B_i T[i, j, k] with clifford's table, first column (the oracle)."""
    table = oracle.table(algebra, "geometric")
    left = np.einsum("i,ijk->kj", bivector, table[algebra.slice(2)])
    return scipy.linalg.expm(left)[:, 0][algebra.grade % 2 == 0]


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("scale", [0.0, 1e-8, 1e-2, 1.0, 3.0])
def test_exp_equals_expm_and_is_a_unit_rotor(signature, scale):
    """Non-simple bivectors included (galgebra #114, kingdon refuse them; clifra #12 took cosh for cos in Cl(0, q))."""
    algebra = Algebra(*signature)
    b = bivectors(algebra, 4, scale)
    rotor = rotors.exp(algebra, b)
    expected = np.array([expm_of_left_multiplication(algebra, x) for x in b.numpy()])
    size = np.abs(expected).max(-1, keepdims=True)
    np.testing.assert_allclose(rotor.numpy() / size, expected / size, atol=2e-14 * max(1, scale))
    unit = operations.product(algebra.even, rotor, rotors.rotor_inverse(algebra, rotor))
    unit[:, 0] -= 1
    assert (unit.abs() / torch.as_tensor(size) ** 2).max() < 1e-13 * max(1, scale)


@pytest.mark.parametrize("signature", SIGNATURES)
def test_exp_has_the_right_gradient_also_at_zero(signature):
    algebra = Algebra(*signature)
    planes = algebra.n * (algebra.n - 1) // 2
    jacobian = torch.autograd.functional.jacobian(
        lambda b: rotors.exp(algebra, b), torch.zeros(planes, dtype=torch.float64)
    )
    expected = torch.zeros(algebra.even.dim, planes, dtype=torch.float64)
    expected[algebra.even.slice(2)] = torch.eye(planes, dtype=torch.float64)
    torch.testing.assert_close(jacobian, expected, atol=1e-15, rtol=0)
    for scale in (1e-3, 0.2, 1.0) if algebra.n < 6 else (1.0,):
        b = bivectors(algebra, 1, scale)[0].requires_grad_()
        assert torch.autograd.gradcheck(lambda x: rotors.exp(algebra, x), b)


def test_exp_of_two_commuting_planes_is_the_product_of_the_planes_exponentials():
    """Grassmann.jl #113, #111: exp(e12 + e34) = 8442 + ... in six dimensions; the scalar part is cos(1)^2 = 0.2919."""
    for n in (4, 5, 6):
        algebra = Algebra(n)
        planes = [name for name in algebra.names if len(name) == 3]
        b = torch.tensor([1.0 if name in ("e12", "e34") else 0.0 for name in planes], dtype=torch.float64)
        rotor = rotors.exp(algebra, b)
        even = algebra.even
        c, s = math.cos(1), math.sin(1)
        expected = torch.zeros(even.dim, dtype=torch.float64)
        expected[0] = c * c
        expected[even.index("e12")] = expected[even.index("e34")] = s * c
        expected[even.index("e1234")] = s * s
        torch.testing.assert_close(rotor, expected, atol=1e-15, rtol=1e-14)
        torch.testing.assert_close(rotors.log(algebra, rotor), b, atol=1e-14, rtol=0)


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e-3, 0.25])
def test_log_inverts_exp_with_the_inverse_gradient_also_at_zero(signature, scale):
    algebra = Algebra(*signature)
    b = bivectors(algebra, 3, scale).requires_grad_()
    back = rotors.log(algebra, rotors.exp(algebra, b))
    torch.testing.assert_close(back, b, atol=1e-14, rtol=1e-12)
    weights = torch.randn_like(b)
    (gradient,) = torch.autograd.grad((back * weights).sum(), b)
    torch.testing.assert_close(gradient, weights, atol=1e-12, rtol=1e-11)


@pytest.mark.parametrize("signature", [(3, 0, 0), (4, 0, 0), (5, 0, 0), (0, 5, 0)])
def test_every_rotor_up_to_five_dimensions_has_a_logarithm(signature):
    algebra = Algebra(*signature)
    rotor = rotors.exp(algebra, bivectors(algebra, 100, 3.0))
    torch.testing.assert_close(rotors.exp(algebra, rotors.log(algebra, rotor)), rotor, atol=1e-12, rtol=0)


def test_log_of_half_turns_boosts_and_translations():
    plane = Algebra(3)
    half_turn = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(
        rotors.log(plane, half_turn), torch.tensor([math.pi / 2, 0, 0], dtype=torch.float64), atol=1e-15, rtol=0
    )
    boost = torch.tensor([math.cosh(5.0), math.sinh(5.0)], dtype=torch.float64)
    torch.testing.assert_close(
        rotors.log(Algebra(1, 1), boost), torch.tensor([5.0], dtype=torch.float64), rtol=1e-12, atol=0
    )
    translation = torch.tensor([1.0, 0.0, 7.0, 0.0], dtype=torch.float64)  # 1 + 7 e13 in Cl(2, 0, 1)
    torch.testing.assert_close(rotors.log(Algebra(2, 0, 1), translation), translation[1:], atol=1e-12, rtol=0)
    assert rotors.log(plane, half_turn.float()).dtype == torch.float32


@pytest.mark.parametrize(
    "signature,rotor",
    [
        ((3, 0, 0), [-1.0, 0, 0, 0]),
        ((3, 0, 0), [2.0, 0, 0, 0]),
        ((1, 1, 0), [-math.cosh(1), math.sinh(1)]),
        ((1, 0, 0), [5.0]),
    ],
)
def test_log_refuses_what_has_none_in_a_sentence(signature, rotor):
    with pytest.raises(ValueError, match="no bivector logarithm"):
        rotors.log(Algebra(*signature), torch.tensor(rotor, dtype=torch.float64))


def test_small_angle_series():
    """minkindr #79, Sophus #108: sin(t/2) / t = 1/2 - t^2/48 near 0; here S(x) = sinh(sqrt x) / sqrt x at x = -(t/2)^2."""
    for t in (1e-1, 1e-3, 1e-5):
        rotor = rotors.exp(Algebra(2), torch.tensor([t / 2], dtype=torch.float64))
        assert rotor[1].item() / t == pytest.approx(0.5 - t**2 / 48, abs=t**4 / 3000 + 3e-16)
    # both sides of the switch between series and closed form
    x = torch.linspace(-0.06, 0.06, 2401, dtype=torch.float64, requires_grad=True)
    value = rotors._sinhc_sqrt(x)
    expected = [math.sinh(math.sqrt(v)) / math.sqrt(v) if v > 0 else math.sin(math.sqrt(-v)) / math.sqrt(-v) if v else 1.0 for v in x.tolist()]  # fmt: skip
    np.testing.assert_allclose(value.detach(), expected, rtol=2e-15)
    (slope,) = torch.autograd.grad(value.sum(), x)
    series = [sum((k + 1) * v**k / math.factorial(2 * k + 3) for k in range(12)) for v in x.tolist()]
    np.testing.assert_allclose(slope, series, rtol=1e-13)


def test_rotors_turn_by_twice_their_angle():
    """R = exp(-B/2) turns e1 towards e2 by |B| (article, section 4.3)."""
    algebra = Algebra(3)
    angle = 0.7
    rotor = rotors.exp(algebra, torch.tensor([-angle / 2, 0, 0], dtype=torch.float64))
    e1 = torch.eye(8, dtype=torch.float64)[algebra.index("e1")]
    turned = rotors.rotate(algebra, rotor, e1)
    assert turned[algebra.index("e1")].item() == pytest.approx(math.cos(angle))
    assert turned[algebra.index("e2")].item() == pytest.approx(math.sin(angle))


def test_a_wrong_number_of_coefficients_ends_in_a_sentence():
    with pytest.raises(ValueError, match="3 coefficients"):
        rotors.exp(Algebra(3), torch.zeros(4))
    with pytest.raises(ValueError, match="4 components"):
        rotors.log(Algebra(3), torch.zeros(3))


@pytest.mark.parametrize("n", [3, 4])
def test_second_derivatives_are_right_of_exp_and_refused_by_log(n):
    """Also where the incoming gradient is a constant, as that of a sum: there a wrong one would look like a right one."""
    algebra = Algebra(n)
    b = bivectors(algebra, 1, 0.3)[0].requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: rotors.exp(algebra, x), b)
    (gradient,) = torch.autograd.grad(rotors.log(algebra, rotors.exp(algebra, b)).sum(), b, create_graph=True)
    torch.testing.assert_close(gradient, torch.ones_like(b))
    with pytest.raises(RuntimeError, match="first derivatives only"):
        gradient.sum().backward()


def test_functional_derivatives_of_log():
    algebra = Algebra(3)
    rotor = rotors.exp(algebra, bivectors(algebra, 1, 0.3)[0])
    log = lambda r: rotors.log(algebra, r)
    torch.testing.assert_close(torch.func.jacfwd(log)(rotor), torch.func.jacrev(log)(rotor))
    for twice in (torch.func.hessian, lambda f: torch.func.jacfwd(torch.func.jacfwd(f))):
        with pytest.raises(RuntimeError, match="first derivatives only"):
            twice(log)(rotor)
