"""Tables of algebra-valued maps, and what is known of a replaced feed-forward block before it is trained; without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geomix.algebra.structure_constants import Algebra, SignedTriplets, span_rank
from geomix.seeds import derive_seed
from geomix.settings.replacements import FeedForward, LinearMap
from geomix.settings.sizes import block_size, inner_width


def algebra_of(spec: LinearMap) -> Algebra | None:
    """The algebra whose components a map's channels hold; None for a map without one."""
    if spec.map in ("complex", "quaternion"):
        return Algebra(0, 1) if spec.map == "complex" else Algebra(3).even
    if spec.map not in ("clifford", "multivector"):
        return None
    return Algebra(*spec.signature, grades=None if spec.grades is None else tuple(sorted(spec.grades)))


def table_of(spec: LinearMap, seed: int) -> SignedTriplets | None:
    """The products of an algebra-valued map; a shuffled table and a gauge draw their signs by seed."""
    if (algebra := algebra_of(spec)) is None:
        return None
    table = algebra.product()
    if spec.table == "true":
        return table
    drawn = derive_seed("algebra", "architectures", seed) % 2**32
    if spec.table == "shuffled":
        return table.shuffled(drawn)
    # e_I -> t_I e_I; the scalar keeps its name, since biases are scalars
    signs = np.where(algebra.grade == 0, 1, np.random.default_rng(drawn).choice([-1, 1], algebra.dim))
    return table.gauge(signs)


@dataclass(frozen=True)
class Block:
    """A replaced feed-forward block.

    inner : its inner width; parameters, macs : biases included, and multiply-adds a frame
    span, of : dimension of the maps that one pair of channels can be given, of how many; None for a map without an algebra
    tying : how its numbers are shared
    """

    inner: int
    parameters: int
    macs: int
    span: int | None
    of: int | None
    tying: str


def describe_block(spec: FeedForward, width: int, ff_dim: int, seed: int) -> Block:
    """The feed-forward block of an arm in a model of this width; `seed` draws a shuffled table."""
    size, inner, table = block_size(spec, width, ff_dim), inner_width(spec, width, ff_dim), table_of(spec, seed)
    if table is None or spec.map == "multivector":
        return Block(inner, size.parameters, size.macs, None, None, "by grade" if table else "none")
    dim = table.out
    # left multiplication spans as many maps under any table of non-zero signs
    span = span_rank(table) if spec.two_sided else dim
    tying = f"{2 if spec.two_sided else 1} x {dim} numbers for each {dim} x {dim} block"
    return Block(inner, size.parameters, size.macs, span, dim**2, tying)
