"""The norm layer of multivectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geomix.algebra import Algebra
from geomix.models.layers.grades import Grades

TINY = 1e-24  # keeps 0 / 0 away where squares underflow; its root and the powers of both are fp32 numbers


class MultivectorNorm(nn.Module):
    """x over the root mean, over channels, of sum_g |<x>_g|^2 =: s, times a learned gain per channel; equivariant, finite at 0.

    In a metric that is not Euclidean, s vanishes for null multivectors, which would grow a thousandfold a layer. There s counts
    only above its own rounding, and what is null to rounding leaves with at most unit coefficients: x / max(1, |x|), |x| the root
    mean over channels of its squared coefficients. Values whose squares overflow are scaled down first. NaN stays NaN.
    """

    def __init__(self, algebra: Algebra, channels: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.grades, self.eps = Grades(algebra), eps
        self.euclidean = not (algebra.q or algebra.r)
        self.gain = nn.Parameter(torch.ones(channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels, dim) to the same."""
        wide = x.float() if x.dtype.itemsize < 4 else x
        limits = torch.finfo(wide.dtype)
        peak = wide.detach().abs().amax((-2, -1))
        shrink = torch.where(peak > 1e-4 * limits.max**0.5, peak.reciprocal(), 1.0)
        wide = wide * shrink[..., None, None]
        size = self.grades(wide).square().sum(-1).mean(-1)
        factor = torch.rsqrt(size + (self.eps * shrink.square()).clamp_min(TINY))
        if not self.euclidean:
            squares = wide.square()
            noise = 8 * limits.eps * (squares * self.grades.signs.abs().sum(-1).to(wide.dtype)).sum(-1).mean(-1)
            above = (size - noise).relu()
            share = above / (above + noise + TINY)  # 1 but for rounding where s is no noise, 0 where it is nothing else
            bound = torch.rsqrt(torch.maximum(squares.sum(-1).mean(-1), shrink.square()))
            factor = share * factor + (1 - share) * bound
        return x * (factor * shrink).to(x.dtype)[..., None, None] * self.gain
