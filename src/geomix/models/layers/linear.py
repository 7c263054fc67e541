"""Linear maps of multivectors: sum of A x B with channel weights that grades share ([Parslow2026], section 4.1).

A multivector activation is (..., channels, dim): the last axis holds the components of an `Algebra`. Contractions with the table
are done in fp32 whatever the storage type.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.algebra import Algebra, SignedTriplets
from geomix.algebra.operations import contract_two_sided
from geomix.errors import UserError
from geomix.kernels.product import product
from geomix.models.layers.grades import Graded

TYINGS = ("grade", "component", "none")


class Factor(Graded):
    """A of A x B: `Graded` on some of an algebra's grades, 0 on the others."""

    def __init__(self, algebra: Algebra, grades: tuple[int, ...] | None, *shape: int) -> None:
        kept = algebra.grades if grades is None else tuple(sorted(grades))
        if not set(kept) <= set(algebra.grades):
            raise UserError(f"factors {list(kept)} of a multivector linear map are not among the grades of {algebra}")
        super().__init__(algebra if grades is None else replace(algebra, grades=kept), *shape)
        places = None if grades is None else torch.tensor([g in kept for g in algebra.grade.tolist()]).nonzero()[:, 0]
        self.dim = algebra.dim
        self.register_buffer("places", places, persistent=False)

    def forward(self) -> Tensor:
        """(*shape, dim) in fp32 (or fp64)."""
        own = super().forward()
        return own if self.places is None else own.new_zeros(*own.shape[:-1], self.dim).index_copy(-1, self.places, own)


class MultivectorLinear(nn.Module):
    """y_o = sum_t A_to (sum_c w_toc x_c) B_to + b_o, with A, B multivectors ([Parslow2026], section 4.1).

    `tying` says what the channel weights w share: "grade", one number per grade (the map is equivariant when terms = 0);
    "component", one per component; "none", no w: a pair (A, B) for every pair of channels, [Parslow2026]'s formula read
    literally. terms = 0 drops A and B. Parameters: terms x (w + 2 out dim) + bias, with w = out in grades, or out in dim; for
    "none", terms x 2 out in dim + bias. It is one linear map of the components: the matrix is assembled from
    the table (a cost free of the batch) and applied as one matrix product.

    Args:
        algebra: of inputs and outputs.
        inputs, outputs: channels.
        terms: number of terms, 0 for channel mixing alone.
        tying: of TYINGS.
        bias: "scalar" (grade 0 only, keeps equivariance), "full" or "none".
        table: products of A, x and B; the algebra's own by default. A control gives another.
        factors: grades of A and B, all that are retained by default; (0, 2) makes them even, as rotors are.
    """

    def __init__(
        self,
        algebra: Algebra,
        inputs: int,
        outputs: int,
        terms: int = 1,
        tying: str = "grade",
        bias: str = "scalar",
        table: SignedTriplets | None = None,
        factors: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        if tying not in TYINGS:
            raise UserError(
                f"tying {tying!r} of a multivector linear map is not known: choose one of {', '.join(TYINGS)}"
            )
        if bias not in ("scalar", "full", "none"):
            raise UserError(f"bias {bias!r} of a multivector linear map is not known: choose scalar, full or none")
        if inputs < 1 or outputs < 1 or terms < 0:
            raise UserError(
                f"{inputs} inputs, {outputs} outputs and {terms} terms of a multivector linear map: give at least 1, 1 and 0"
            )
        if terms == 0 and tying == "none":
            raise UserError("tying 'none' has no channel weights and needs at least one term")
        if bias == "scalar" and 0 not in algebra.grades:
            raise UserError(f"a scalar bias needs grade 0, which {algebra} does not retain: use bias='full' or 'none'")
        self.algebra, self.inputs, self.outputs, self.terms, self.tying = algebra, inputs, outputs, terms, tying
        pair = (outputs, inputs) if tying == "none" else (outputs,)
        self.left = Factor(algebra, factors, terms, *pair) if terms else None
        self.right = Factor(algebra, factors, terms, *pair) if terms else None
        self.mixing = (
            None if tying == "none" else Graded(algebra, max(terms, 1), outputs, inputs, tied=tying == "grade")
        )
        size = {"scalar": 1, "full": algebra.dim, "none": 0}[bias]
        self.bias = nn.Parameter(torch.zeros(outputs, size)) if size else None
        self.triplets = algebra.product() if table is None else table
        self.register_buffer("table", torch.from_numpy(self.triplets.dense()).float(), persistent=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Outputs of about the variance of the inputs: w ~ N(0, 1 / (in x terms)); A and B are 1 plus noise of 0.1."""
        fan = self.inputs * max(self.terms, 1)
        if self.mixing is not None:
            for parameter in self.mixing.parameters():
                parameter.normal_(std=fan**-0.5)
        if self.terms:
            spread = 0.1 if self.mixing is not None else (fan * self.algebra.dim) ** -0.25
            for factor in (self.left, self.right):
                for parameter in factor.parameters():
                    parameter.normal_(std=spread)
                if self.mixing is not None and 0 in factor.sizes:
                    factor.of(0).add_(1)
        if self.bias is not None:
            self.bias.zero_()

    def weight_matrix(self) -> Tensor:
        """(outputs x dim, inputs x dim) matrix of the map on flattened components."""
        dim = self.algebra.dim
        if not self.terms:
            weight = torch.einsum(
                "toci,ij->oicj", self.mixing(), torch.eye(dim, device=self.table.device, dtype=self.mixing().dtype)
            )
        else:
            left, right = self.left(), self.right()
            maps = contract_two_sided(self.table.to(left.dtype), left, right)
            if self.mixing is None:
                weight = torch.einsum("tockj->okcj", maps)
            else:
                weight = torch.einsum("tokj,tocj->okcj", maps, self.mixing())
        return weight.reshape(self.outputs * dim, self.inputs * dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs, dim) to (..., outputs, dim)."""
        self._check(x)
        y = F.linear(x.flatten(-2), self.weight_matrix().to(x.dtype)).unflatten(-1, (self.outputs, self.algebra.dim))
        if self.bias is None:
            return y
        return y + F.pad(self.bias, (0, self.algebra.dim - self.bias.shape[1])).to(y.dtype)

    def products(self, x: Tensor) -> Tensor:
        """The same map by geometric products, term by term (the definition; for few channels and large batches)."""
        self._check(x)
        table, wide = self.triplets, torch.promote_types(x.dtype, torch.float32)
        x = x.to(wide)
        if self.mixing is None:
            y = product(
                table, product(table, self.left().to(wide), x[..., None, None, :, :]), self.right().to(wide)
            ).sum((-4, -2))
        else:
            mixed = torch.einsum("...ci,toci->...toi", x, self.mixing().to(wide))
            if self.terms:
                mixed = product(table, product(table, self.left().to(wide), mixed), self.right().to(wide))
            y = mixed.sum(-3)
        return y if self.bias is None else y + F.pad(self.bias.to(wide), (0, self.algebra.dim - self.bias.shape[1]))

    def _check(self, x: Tensor) -> None:
        if x.shape[-2:] != (self.inputs, self.algebra.dim):
            raise ValueError(
                f"an input of shape {tuple(x.shape)} does not end in the {self.inputs} channels and {self.algebra.dim} "
                "components that this multivector linear map takes"
            )

    def extra_repr(self) -> str:
        return f"{self.inputs}, {self.outputs}, algebra={self.algebra}, terms={self.terms}, tying={self.tying!r}"


def stacked_linear(weight: Tensor, bias: Tensor, grade: Tensor, x: Tensor) -> Tensor:
    """`MultivectorLinear` with terms = 0 of T x R models at once, components before channels: one matrix product a component.

    weight (T, R, grades, out, in), bias (T, R, out, 1) of the scalar component, grade (dim,) the row of `weight` that a component
    takes, x (T, dim, R, in, N); the result is (T, dim, R, out, N).
    """
    bias = F.pad(bias.unsqueeze(1), (0, 0) * 3 + (0, len(grade) - 1))  # (T, dim, R, out, 1)
    weight = weight.index_select(2, grade.to(x.device)).transpose(1, 2)
    flat = torch.baddbmm(bias.flatten(0, 2), weight.flatten(0, 2), x.flatten(0, 2))
    return flat.view(*x.shape[:3], *flat.shape[1:])
