"""Multivector layers: linear maps, embeddings, products, nonlinearities, adapters, and their adoption by a Transformer.

A multivector activation is (..., channels, dim): the last axis holds the components of an `Algebra`. Parameters are stored grade
by grade, so that grades can be initialised and trained at rates of their own. Contractions with the table are done in fp32
whatever the storage type.
Source: the k-blade article, sections 4.1, 4.4, 6.3 and 6.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.algebra import Algebra
from geomix.algebra.operations import contract_two_sided, safe_sqrt
from geomix.errors import UserError
from geomix.kernels.autocast import without_autocast
from geomix.kernels.product import product
from geomix.mixers.multivector_attention import MultivectorAttention, RotorPositions, ValueTransform

TYINGS = ("grade", "component", "none")
TINY = 1e-24  # keeps 0 / 0 away where squares underflow; its root and the powers of both are fp32 numbers
COMPONENTS = ("embeddings", "qk", "positions", "values")


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


class MultivectorLinear(nn.Module):
    """y_o = sum_t A_to (sum_c w_toc x_c) B_to + b_o, with A, B multivectors (article, section 4.1).

    `tying` says what the channel weights w share: "grade", one number per grade (the map is equivariant when terms = 0);
    "component", one per component; "none", no w: a pair (A, B) for every pair of channels, the article's formula read
    literally. terms = 0 drops A and B. Parameters: terms x (w + 2 out dim) + bias, with w = out in grades, or out in dim; for
    "none", terms x 2 out in dim + bias. It is one linear map of the components: the matrix is assembled from
    the table (a cost free of the batch) and applied as one matrix product.

    Args:
        algebra: of inputs and outputs.
        inputs, outputs: channels.
        terms: number of terms, 0 for channel mixing alone.
        tying: of TYINGS.
        bias: "scalar" (grade 0 only, keeps equivariance), "full" or "none".
    """

    def __init__(
        self, algebra: Algebra, inputs: int, outputs: int, terms: int = 1, tying: str = "grade", bias: str = "scalar"
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
        self.left = Graded(algebra, terms, *pair) if terms else None
        self.right = Graded(algebra, terms, *pair) if terms else None
        self.mixing = (
            None if tying == "none" else Graded(algebra, max(terms, 1), outputs, inputs, tied=tying == "grade")
        )
        size = {"scalar": 1, "full": algebra.dim, "none": 0}[bias]
        self.bias = nn.Parameter(torch.zeros(outputs, size)) if size else None
        self.register_buffer("table", torch.from_numpy(algebra.product().dense()).float(), persistent=False)
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
                if self.mixing is not None and 0 in self.algebra.grades:
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
        table, wide = self.algebra.product(), torch.promote_types(x.dtype, torch.float32)
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


class MultivectorEmbedding(nn.Module):
    """Token ids to multivectors (..., channels, dim); with `flat`, to (..., channels x dim), as nn.Embedding gives.

    `weight` is the (vocab, channels x dim) table, so that an output head can be tied to it.
    """

    def __init__(self, vocab: int, channels: int, algebra: Algebra, flat: bool = False) -> None:
        super().__init__()
        self.algebra, self.channels, self.flat = algebra, channels, flat
        self.table = Graded(algebra, vocab, channels)
        for parameter in self.table.parameters():
            nn.init.normal_(parameter)

    @property
    def weight(self) -> Tensor:
        """(vocab, channels x dim), in the storage type."""
        return self.table().flatten(1).to(self.table.of(self.algebra.grades[0]).dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """Integer ids (...) to multivectors."""
        whole = torch.cat(
            [
                F.embedding(ids, self.table.of(g).flatten(1)).unflatten(-1, (self.channels, -1))
                for g in self.algebra.grades
            ],
            -1,
        )
        return whole.flatten(-2) if self.flat else whole


class ProductLayer(nn.Module):
    """y = (U x)(V x) + W x with three equivariant channel mixings: the geometric product as a nonlinearity.

    The product and the residual use three maps of x, one each (documentation and code say the same: GATr issue #4).
    """

    def __init__(self, algebra: Algebra, inputs: int, outputs: int, terms: int = 0, tying: str = "grade") -> None:
        super().__init__()
        self.algebra, self.triplets = algebra, algebra.product()
        self.first, self.second, self.linear = (
            MultivectorLinear(algebra, inputs, outputs, terms, tying) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs, dim) to (..., outputs, dim)."""
        return product(self.triplets, self.first(x), self.second(x)) + self.linear(x)


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


class NormActivation(nn.Module):
    """Each grade's direction kept and its magnitude n mapped to n sigmoid(a n + b) (section 4.4, first option); equivariant.

    Written as a factor on the grade, so that nothing is divided by the magnitude; a and b are learned per channel and grade.
    """

    def __init__(self, algebra: Algebra, channels: int) -> None:
        super().__init__()
        self.grades = Grades(algebra)
        self.slope = nn.Parameter(torch.ones(channels, len(algebra.grades)))
        self.offset = nn.Parameter(torch.zeros(channels, len(algebra.grades)))

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels, dim) to the same."""
        return x * self.grades.expand(torch.sigmoid(self.slope * self.grades(x) + self.offset))


class ComponentActivation(nn.Module):
    """A scalar nonlinearity on every coefficient (section 4.4, second option); not equivariant."""

    def __init__(self, function=F.gelu) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) to the same."""
        return self.function(x)


class GradeGate(nn.Module):
    """<M>_g -> gate_g sigma(<M>_g) with a learned gate per channel and grade (section 4.4, third option); not equivariant."""

    def __init__(self, algebra: Algebra, channels: int, function=F.gelu) -> None:
        super().__init__()
        self.grades, self.function = Grades(algebra), function
        self.gate = nn.Parameter(torch.ones(channels, len(algebra.grades)))

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels, dim) to the same."""
        return self.grades.expand(self.gate) * self.function(x)


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


class ToMultivector(nn.Module):
    """Adapter (..., width) to (..., channels, dim): a linear map onto the components of `grades` (all by default), 0 elsewhere."""

    def __init__(self, algebra: Algebra, width: int, channels: int, grades: tuple[int, ...] | None = None) -> None:
        super().__init__()
        kept = algebra.grades if grades is None else grades
        places = torch.tensor([i for i, g in enumerate(algebra.grade.tolist()) if g in kept])
        if not len(places):
            raise UserError(f"grades {kept} of an adapter are not among those of {algebra}")
        self.algebra, self.channels = algebra, channels
        self.register_buffer("places", places, persistent=False)
        self.linear = nn.Linear(width, channels * len(places))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to (..., channels, dim)."""
        y = self.linear(x).unflatten(-1, (self.channels, -1))
        return y.new_zeros(*y.shape[:-1], self.algebra.dim).index_copy(-1, self.places, y)


class FromMultivector(nn.Module):
    """Adapter (..., channels, dim) to (..., width), linear in the components, or, with `invariant`, in the grades' norms."""

    def __init__(self, algebra: Algebra, channels: int, width: int, invariant: bool = False) -> None:
        super().__init__()
        self.grades = Grades(algebra) if invariant else None
        self.linear = nn.Linear(channels * (len(algebra.grades) if invariant else algebra.dim), width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels, dim) to (..., width)."""
        return self.linear((x if self.grades is None else self.grades(x)).flatten(-2))


@torch.no_grad()
def initialise_from_scalar(
    layer: MultivectorLinear, weight: Tensor, bias: Tensor | None = None, noise: float = 1e-3
) -> None:
    """A scalar baseline's weights on grade 0 and small noise above (article, section 6.3).

    With noise 0 the layer maps scalars exactly as F.linear(x, weight, bias) does. Further terms start as noise.
    `weight` (outputs, inputs), `bias` (outputs,).
    """
    if weight.shape != (layer.outputs, layer.inputs):
        raise UserError(
            f"scalar weight of shape {tuple(weight.shape)} does not fit a map of {layer.inputs} to {layer.outputs}"
        )
    if 0 not in layer.algebra.grades:
        raise UserError(f"{layer.algebra} has no grade 0 to hold scalar weights")
    for parameter in layer.parameters():
        parameter.normal_(std=noise) if noise else parameter.zero_()
    if layer.mixing is not None:
        layer.mixing.of(0)[0, ..., 0] = weight
    if layer.terms:
        layer.right.of(0)[0] += 1
        if layer.mixing is None:
            layer.left.of(0)[0, ..., 0] = weight
        else:
            layer.left.of(0)[0] += 1
    if layer.bias is not None:
        layer.bias.zero_()
        if bias is not None:
            layer.bias[:, 0] = bias


def parameter_groups(model: nn.Module, rate: float, grade_factors: Mapping[int, float]) -> list[dict]:
    """Optimiser groups with a rate per grade: rate x grade_factors[g] for tensors of grade g (factor 1 by default), rate for others.

    Every trainable parameter is in exactly one group.
    """
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            grade = re.search(r"(?:^|\.)grade(\d+)$", name)
            factor = grade_factors.get(int(grade[1]), 1.0) if grade else 1.0
            groups.setdefault(factor, []).append(parameter)
    return [{"params": parameters, "lr": rate * factor} for factor, parameters in groups.items()]


def replace_component(model: nn.Module, component: str, algebra: Algebra | None = None, **arguments) -> nn.Module:
    """Replace one component of a Transformer by its multivector form, in place; the model is returned (article, phase 2).

    embeddings: `tokens` (nn.Embedding) becomes a MultivectorEmbedding with the same table. qk: every attention scores by
    <q ~k>_0 with a learned temperature per grade. positions: rotor positions in every attention instead of the model's own
    `positions` embedding, which is dropped. values: v -> sum A v B in every attention. All but positions leave the function as
    it was in a Euclidean algebra, so that training starts from the scalar model. Calls may follow one another.

    The model is a Transformer with `tokens`, `positions` and attentions that have `heads`, `qkv` and `out`, such as
    `models.transformer_lm.TransformerLM`. `arguments` go to MultivectorAttention; `algebra` is Cl(3) by default.
    Raises UserError for an unknown component or a model without it.
    """
    if component not in COMPONENTS:
        raise UserError(f"component {component!r} is not known: choose one of {', '.join(COMPONENTS)}")
    algebra = algebra or Algebra(3)
    if component == "embeddings":
        tokens = getattr(model, "tokens", None)
        if not isinstance(tokens, nn.Embedding):
            raise UserError("the model has no scalar token embedding named `tokens` to replace")
        vocab, width = tokens.weight.shape
        if width % algebra.dim:
            raise UserError(f"embedding width {width} is not a multiple of the {algebra.dim} components of {algebra}")
        embedding = MultivectorEmbedding(vocab, width // algebra.dim, algebra, flat=True).to(tokens.weight)
        with torch.no_grad():
            whole = tokens.weight.view(vocab, -1, algebra.dim)
            for grade in algebra.grades:
                embedding.table.of(grade).copy_(whole[..., algebra.slice(grade)])
        model.tokens = embedding
        return model
    places = [
        (parent, name, child)
        for parent in list(model.modules())
        for name, child in parent.named_children()
        if all(hasattr(child, a) for a in ("heads", "qkv", "out"))
    ]
    if not places:
        raise UserError("the model has no attention with `heads`, `qkv` and `out` to replace")
    for parent, name, child in places:
        attention = child
        if not isinstance(child, MultivectorAttention):
            options = {"causal": True, "signature": (algebra.p, algebra.q, algebra.r), "grades": algebra.grades}
            attention = MultivectorAttention.from_attention(
                child.qkv, child.out, child.heads, **{**options, "temperature": "dot", **arguments}
            )
            setattr(parent, name, attention)
        if component == "qk":
            attention.set_score("grade")
        like = attention.qkv.weight
        if component == "positions":
            attention.positions = RotorPositions(attention.algebra, attention.channels).to(like.device)
        elif component == "values":
            attention.values = ValueTransform(attention.algebra, attention.heads, attention.channels, 1).to(like.device)
    if component == "positions" and isinstance(getattr(model, "positions", None), nn.Embedding):
        model.positions = _NoPositions(model.positions)
    return model


class _NoPositions(nn.Module):
    """Stands where a learned position table was: its `weight` is zero and no parameter."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros_like(table.weight), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """Zeros (..., width)."""
        return F.embedding(positions, self.weight)
