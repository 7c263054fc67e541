"""Rotors: exponential and logarithm of bivectors in any signature Cl(p, q, r), non-simple bivectors included.

A bivector is its n(n-1)/2 coefficients in the order e12, e13, ..., e23, ...; a rotor is an element of `algebra.even`.
Sources: [Riesz1958]; [AlMohyHigham2012] for the logarithm's scheme.
"""

from __future__ import annotations

from math import factorial

import torch

from geomix.algebra.operations import dense_table, reverse, sandwich, signs
from geomix.algebra.structure_constants import Algebra

SERIES_BELOW = 0.05  # |B^2| under which the even series is summed: 7 terms leave 1e-20


def exp(algebra: Algebra, bivector: torch.Tensor) -> torch.Tensor:
    """exp(B) (..., algebra.even.dim) of a bivector (..., n(n-1)/2), with the right value and gradient at zero.

    For n <= 3 every bivector is simple, B^2 is a scalar and exp B = cosh sqrt(B^2) + B sinh(sqrt(B^2)) / sqrt(B^2) in closed
    form (cos and sin where B^2 < 0, 1 + B where B^2 = 0). For n >= 4 it is the exponential of the left multiplication by B on
    the even subalgebra, applied to 1. bf16 and fp16 are computed in fp32 and rounded once; NaN stays NaN.
    Raises ValueError for a wrong number of coefficients.
    """
    even, dtype = algebra.even, bivector.dtype
    _check_bivector(algebra, bivector)
    if dtype in (torch.bfloat16, torch.float16):
        return exp(algebra, bivector.float()).to(dtype)
    if algebra.n <= 3:
        planes = signs(_plane_squares(algebra), bivector)
        square = (bivector * bivector * planes).sum(-1, keepdim=True)
        return torch.cat((_cosh_sqrt(square), bivector * _sinhc_sqrt(square)), -1)
    return torch.linalg.matrix_exp(_left(even, bivector))[..., 0]


def log(algebra: Algebra, rotor: torch.Tensor) -> torch.Tensor:
    """Principal logarithm B (..., n(n-1)/2) of a unit rotor (..., algebra.even.dim): exp(B) = R.

    The primary logarithm of the left multiplication by R (inverse scaling and squaring), polished by one Newton step on
    exp(B) = R. That step carries the gradient: by the implicit function theorem dB = J^+ dR with J the derivative of exp,
    which is finite at R = 1. Second derivatives raise RuntimeError. Every rotor of n <= 5 off the cut has this logarithm, with
    the angles of its planes adding up to less than pi; for n >= 6 it is found when they do.
    Raises ValueError where there is none: on the cut (R = -1), for minus a boost, or for an element that is no unit rotor.
    """
    even = algebra.even
    if rotor.shape[-1] != even.dim:
        raise ValueError(f"a rotor of {algebra} has {even.dim} components, got {rotor.shape[-1]}.")
    eps = torch.finfo(rotor.dtype).eps
    tolerance = min(1e4 * eps, max(1.2e-3, 8 * eps))  # a rotor is rounding away from a unit one: 6e-2 in bf16
    if algebra.n < 2:  # there is no plane: the only rotor with a logarithm is 1
        _check_found(algebra, (rotor[..., 0] - 1).abs() <= tolerance)
        return rotor[..., :0]
    wide = torch.promote_types(rotor.dtype, torch.float64)
    with torch.no_grad():
        target = rotor.to(wide)
        start = _matrix_log(_left(even, target, whole=True))[..., even.slice(2), 0]
        found = start.isfinite().all(-1)  # NaN comes from a singular square root
        start = torch.where(found.unsqueeze(-1), start, 0.0)
        start = start + _newton(algebra, start, target)
        error = (exp(algebra, start) - target).abs().amax(-1)
        _check_found(algebra, found & (error <= tolerance * target.abs().amax(-1).clamp(min=1)))
    return (start + _newton(algebra, start, _Once.apply(rotor.to(wide), None))).to(rotor.dtype)


class _Once(torch.autograd.Function):
    """The identity of x. Its derivative is again the identity, but one that remembers its `argument` and has no derivative itself.

    `once_differentiable` would not do: it lets the second derivative pass as zero wherever the incoming gradient is a constant.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x, argument):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, argument = inputs
        ctx.last = argument is not None
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, grad):
        return _Once._derivative(ctx, grad), None

    @staticmethod
    def jvp(ctx, tangent, _):
        return _Once._derivative(ctx, tangent)

    @staticmethod
    def _derivative(ctx, change):
        if ctx.last:
            raise RuntimeError(
                "rotors.log has first derivatives only: take second ones by finite differences of its gradient."
            )
        return _Once.apply(change, *ctx.saved_tensors)


def rotate(algebra: Algebra, rotor: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """R M ~R of a unit rotor (..., algebra.even.dim) on a multivector (..., algebra.dim)."""
    return sandwich(algebra, rotor, m, algebra.even)


def rotor_inverse(algebra: Algebra, rotor: torch.Tensor) -> torch.Tensor:
    """~R, the inverse of a unit rotor."""
    return reverse(algebra.even, rotor)


def _check_bivector(algebra: Algebra, bivector: torch.Tensor) -> None:
    size = algebra.n * (algebra.n - 1) // 2
    if bivector.shape[-1] != size:
        raise ValueError(f"a bivector of {algebra} has {size} coefficients, got {bivector.shape[-1]}.")


def _check_found(algebra: Algebra, found: torch.Tensor) -> None:
    if not found.all():
        raise ValueError(
            f"{int((~found).sum())} of {found.numel()} elements of {algebra} have no bivector logarithm: they are "
            "not unit rotors, lie on the cut (a rotation by 2 pi), or are minus a boost; normalise them or use -R."
        )


def _plane_squares(algebra: Algebra) -> list[int]:
    """(e_i e_j)^2 = -s_i s_j for i < j."""
    metric = algebra.metric.tolist()
    return [-metric[i] * metric[j] for i in range(algebra.n) for j in range(i + 1, algebra.n)]


def _even_series(square: torch.Tensor, offset: int) -> torch.Tensor:
    """sum_k square^k / (2k + offset)!, k = 0..6, by Horner's rule."""
    total = torch.zeros_like(square)
    for k in reversed(range(7)):
        total = total * square + 1 / factorial(2 * k + offset)
    return total


def _root(square: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """sqrt |square| where asked, 1 elsewhere, so that no branch sees a value (or slope) it cannot digest."""
    return torch.sqrt(torch.where(where, square.abs(), torch.ones_like(square)))


def _cosh_sqrt(square: torch.Tensor) -> torch.Tensor:
    """The entire function cosh(sqrt(x)) of any real x."""
    up, down = square > SERIES_BELOW, square < -SERIES_BELOW
    near = _even_series(torch.where(up | down, torch.zeros_like(square), square), 0)
    return torch.where(up, torch.cosh(_root(square, up)), torch.where(down, torch.cos(_root(square, down)), near))


def _sinhc_sqrt(square: torch.Tensor) -> torch.Tensor:
    """The entire function sinh(sqrt(x)) / sqrt(x) of any real x."""
    up, down = square > SERIES_BELOW, square < -SERIES_BELOW
    near = _even_series(torch.where(up | down, torch.zeros_like(square), square), 1)
    high, low = _root(square, up), _root(square, down)
    return torch.where(up, torch.sinh(high) / high, torch.where(down, torch.sin(low) / low, near))


def _left(even: Algebra, coefficients: torch.Tensor, whole: bool = False) -> torch.Tensor:
    """(..., N, N) left multiplication on the even subalgebra by a bivector, or by a whole even element."""
    table = dense_table(even.product(), coefficients.dtype, coefficients.device)
    return torch.einsum("...i,ijk->...kj", coefficients, table if whole else table[even.slice(2)])


def _newton(algebra: Algebra, bivector: torch.Tensor, rotor: torch.Tensor) -> torch.Tensor:
    """J^+ (R - exp B), differentiable in R alone; J (..., N, planes) is the derivative of exp at B.

    expm [[M, E], [0, M]] holds the derivative in the direction E in its upper right block.
    """
    with torch.no_grad():
        even = algebra.even
        size, planes = even.dim, bivector.shape[-1]
        left = _left(even, bivector).unsqueeze(-3).expand(*bivector.shape[:-1], planes, size, size)
        step = _left(even, torch.eye(planes, dtype=bivector.dtype, device=bivector.device)).expand_as(left)
        block = torch.cat((torch.cat((left, step), -1), torch.cat((torch.zeros_like(left), left), -1)), -2)
        whole = torch.linalg.matrix_exp(block)
        jacobian = whole[..., :size, size].transpose(-1, -2)
        value = whole[..., 0, :size, 0]
        inverse = torch.linalg.pinv(jacobian)
    return (inverse @ (rotor - value).unsqueeze(-1)).squeeze(-1)


def _matrix_log(matrix: torch.Tensor) -> torch.Tensor:
    """Principal logarithm of (..., N, N) matrices by inverse scaling and squaring; NaN where a square root does not exist."""
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    halvings = 0
    while halvings < 64 and not (matrix - identity).abs().sum(-2).amax(-1).le(0.25).all():
        matrix, halvings = _matrix_sqrt(matrix, identity), halvings + 1
        if not matrix.isfinite().all():
            break
    # log M = 2 artanh((M - 1) / (M + 1)), |z| < 1/7: 11 terms leave 1e-19
    z = torch.linalg.inv_ex(matrix + identity)[0] @ (matrix - identity)
    square, power, total = z @ z, z, torch.zeros_like(z)
    for odd in range(1, 22, 2):
        total, power = total + power / odd, power @ square
    return total * 2.0 ** (halvings + 1)


def _matrix_sqrt(matrix: torch.Tensor, identity: torch.Tensor) -> torch.Tensor:
    """Principal square root by the Denman-Beavers iteration (quadratic; works for non-normal and parabolic matrices)."""
    root, inverse = matrix, identity.expand_as(matrix)
    for _ in range(40):
        new = (root + torch.linalg.inv_ex(inverse)[0]) / 2
        inverse = (inverse + torch.linalg.inv_ex(root)[0]) / 2
        change = (new - root).abs().amax()
        root = new
        if not change > 1e-15 * root.abs().amax():  # converged, or NaN
            break
    return root
