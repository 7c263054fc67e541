"""Replaces in a model of the house what an arm replaces beside the mixer: feed-forward maps, projections, embedding, positions.

Each part draws its first weights from a stream of its own, so that all else starts as in the model with nothing replaced.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geomix.algebra import Algebra
from geomix.models.layers.embedding import MultivectorEmbedding
from geomix.models.layers.maps import make_map
from geomix.settings.replacements import Embedding, FeedForward, Projections
from geomix.settings.sizes import inner_width
from geomix.tensors import drawn_apart

ROLES = ("q", "k", "v")


def feed_forward_maps(
    spec: FeedForward, width: int, ff_dim: int, seed: int, *place: int | str
) -> tuple[nn.Module, nn.Module]:
    """The maps into and out of the inner layer of the feed-forward module at `place` in the model."""
    inner = inner_width(spec, width, ff_dim)
    with drawn_apart(seed, "feed-forward", *place):
        return (
            make_map(spec, width, inner, width=width, seed=seed),
            make_map(spec, inner, width, width=width, seed=seed),
        )


class Joined(nn.Module):
    """Three maps of one input, their outputs side by side: queries, keys and values that are not one map."""

    def __init__(self, q: nn.Module, k: nn.Module, v: nn.Module) -> None:
        super().__init__()
        self.q, self.k, self.v = q, k, v

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to (..., 3 width)."""
        return torch.cat((self.q(x), self.k(x), self.v(x)), -1)


def replace_projections(attention: nn.Module, spec: Projections, width: int, seed: int, block: int) -> None:
    """Replace an attention's maps in place; those that `spec` leaves keep their weights."""
    widths = spec.widths(width)

    def new(role: str) -> nn.Module:
        with drawn_apart(seed, "projections", block, role):
            return make_map(spec, *widths[role], width=width, seed=seed)

    if hasattr(attention, "qkv"):
        if spec.inner is not None:
            attention.set_widths(*(spec.inner if role in spec.of else width for role in ("q", "v")))
        old = zip(attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3), strict=True)
        parts = [new(role) if role in spec.of else _linear(*of) for role, of in zip(ROLES, old, strict=True)]
        if set(ROLES) & set(spec.of):
            attention.qkv = Joined(*parts)
        if "out" in spec.of:
            attention.out = new("out")
        return
    for role in spec.of:
        setattr(attention, f"linear_{role}", new(role))


@torch.no_grad()
def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device)
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)
    return layer


@torch.no_grad()
def multivector_embedding(tokens: nn.Embedding, spec: Embedding) -> MultivectorEmbedding:
    """The same table grade by grade, the values of grades above 0 scaled."""
    algebra = Algebra(*spec.signature, grades=None if spec.grades is None else tuple(sorted(spec.grades)))
    vocab, width = tokens.weight.shape
    with drawn_apart("embedding"):
        embedding = MultivectorEmbedding(vocab, width // algebra.dim, algebra, flat=True).to(tokens.weight)
    whole = tokens.weight.view(vocab, -1, algebra.dim)
    for grade in algebra.grades:
        embedding.table.of(grade).copy_(whole[..., algebra.slice(grade)])
        if grade:
            embedding.table.of(grade).mul_(spec.higher_grades)
    return embedding
