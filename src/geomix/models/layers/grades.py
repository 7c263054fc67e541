"""Parameters that are stored grade by grade, and norms of grades ([Parslow2026], sections 4.4 and 6.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.algebra import Algebra
from geomix.algebra.operations import safe_sqrt
from geomix.kernels.autocast import without_autocast


class Graded(nn.Module):
    """A parameter (*shape, dim), or (*shape, one number a grade) expanded to it, stored as one tensor a grade: `grade0`, ..."""

    def __init__(self, algebra: Algebra, *shape: int, tied: bool = False) -> None:
        super().__init__()
        self.sizes = {g: int((algebra.grade == g).sum()) for g in algebra.grades}
        self.tied = tied
        for grade, size in self.sizes.items():
            self.register_parameter(f"grade{grade}", nn.Parameter(torch.zeros(*shape, 1 if tied else size)))

    def of(self, grade: int) -> nn.Parameter:
        """The tensor of one grade."""
        return getattr(self, f"grade{grade}")

    def forward(self) -> Tensor:
        """(*shape, dim) in fp32 (or fp64)."""
        parts = [self.of(g) for g in self.sizes]
        if self.tied:
            parts = [p.expand(*p.shape[:-1], size) for p, size in zip(parts, self.sizes.values(), strict=True)]
        whole = torch.cat(parts, -1)
        return whole.to(torch.promote_types(whole.dtype, torch.float32))


class Grades(nn.Module):
    """Norms of the grades of a multivector and the way back from numbers a grade to numbers a component."""

    def __init__(self, algebra: Algebra) -> None:
        super().__init__()
        index = torch.tensor([algebra.grades.index(g) for g in algebra.grade.tolist()])
        signs = F.one_hot(index, len(algebra.grades)) * torch.tensor(algebra.squares.tolist()).unsqueeze(1)
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("signs", signs.float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """|<M>_g| of each retained grade, (..., dim) to (..., grades): invariant under Pin; gradient 0 where a grade vanishes.

        Squared and summed in at least fp32, whatever autocast says; NaN stays NaN.
        """
        wide = x.float() if x.dtype.itemsize < 4 else x
        with without_autocast(x):
            return safe_sqrt((wide.square() @ self.signs.to(wide.dtype)).abs()).to(x.dtype)

    def expand(self, per_grade: Tensor) -> Tensor:
        """(..., grades) to (..., dim)."""
        return per_grade.index_select(-1, self.index)
