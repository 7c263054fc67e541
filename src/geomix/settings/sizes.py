"""Sizes of what an arm replaces beside the mixer, without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from geomix.errors import UserError
from geomix.mixers.registry import arguments_of
from geomix.settings.replacements import FeedForward, LinearMap, Projections, Replacements

TOLERANCE = 0.05
"""Largest deviation of a feed-forward block from the parameters of the dense one, as a fraction."""
INNER_STEP = 4
"""What the inner width of a low-rank block, which no algebra decides, is a multiple of."""
ALGEBRA_VALUED = ("complex", "quaternion", "clifford")


@dataclass(frozen=True)
class MapSize:
    """Parameters and multiply-adds a frame of linear maps."""

    parameters: int
    macs: float

    def __add__(self, other: MapSize) -> MapSize:
        return MapSize(self.parameters + other.parameters, self.macs + other.macs)


def components(spec: LinearMap) -> list[int]:
    """Components of each retained grade of a map's algebra; [1] where it has none."""
    if spec.map in ("complex", "quaternion"):
        return [1, 1] if spec.map == "complex" else [1, 3]
    if spec.map not in ("clifford", "multivector"):
        return [1]
    n = sum(spec.signature)
    return [math.comb(n, grade) for grade in (range(n + 1) if spec.grades is None else sorted(spec.grades))]


def step(spec: LinearMap) -> int:
    """What a map's inputs and outputs must be multiples of."""
    return spec.groups if spec.map == "grouped" else sum(components(spec))


def rank(spec: LinearMap, width: int) -> int:
    """Inner width of a low-rank map in a model of this width: thin enough that a wider inner layer pays for it."""
    return spec.rank or max(1, width * 2 // 5)


def map_size(spec: LinearMap, inputs: int, outputs: int, width: int) -> MapSize:
    """Size of a map with its bias, in a model of this width; an algebra-valued one is applied as the matrix that it is."""
    dim = step(spec)
    if inputs % dim or outputs % dim:
        raise UserError(f"map {spec.map}: widths {inputs} and {outputs} must be multiples of {dim}")
    if spec.map == "low_rank":
        thin = rank(spec, width) * (inputs + outputs)
        return MapSize(thin + outputs, thin)
    if spec.map == "grouped":
        return MapSize(inputs * outputs // dim + outputs, inputs * outputs // dim)
    if spec.map in ALGEBRA_VALUED:
        return MapSize((2 if spec.two_sided else 1) * inputs * outputs // dim + outputs, inputs * outputs)
    if spec.map == "multivector":
        shared = len(components(spec)) if spec.tying == "grade" else dim
        mixing = max(spec.terms, 1) * shared * (inputs // dim) * (outputs // dim)
        bias = outputs // dim if spec.grades is None or 0 in spec.grades else 0
        n = sum(spec.signature)
        factor = dim if spec.factors is None else sum(math.comb(n, grade) for grade in spec.factors)
        return MapSize(mixing + 2 * spec.terms * (outputs // dim) * factor + bias, inputs * outputs)
    return MapSize(inputs * outputs + outputs, inputs * outputs)


def block_size(spec: FeedForward | None, width: int, ff_dim: int) -> MapSize:
    """Size of one feed-forward block; of the model's own where nothing replaces it."""
    spec = spec or FeedForward(map="dense", inner=ff_dim)
    return _size_at(spec, width, inner_width(spec, width, ff_dim))


def _size_at(spec: LinearMap, width: int, inner: int) -> MapSize:
    return map_size(spec, width, inner, width) + map_size(spec, inner, width, width)


def inner_width(spec: FeedForward, width: int, ff_dim: int) -> int:
    """Inner width of a feed-forward block: the one that is named, or nearest to the parameters of the dense block of `ff_dim`.

    Raises UserError where no inner width comes within 5 %.
    """
    if spec.inner is not None:
        return spec.inner
    like = spec if spec.inner_of is None else LinearMap(map=spec.inner_of)
    return _nearest(like.model_dump_json(include=set(LinearMap.model_fields)), width, ff_dim)


@lru_cache(maxsize=256)
def _nearest(spec_json: str, width: int, ff_dim: int) -> int:
    spec = LinearMap.model_validate_json(spec_json)
    if spec.map == "dense":
        return ff_dim
    budget = _size_at(LinearMap(), width, ff_dim).parameters
    count = lambda inner: _size_at(spec, width, inner).parameters
    by = INNER_STEP if spec.map == "low_rank" else step(spec)
    # sizes are linear in the inner width
    slope = (count(2 * by) - count(by)) / by
    inner = max(by, int((budget - count(by)) / slope + by) // by * by)
    best = min((inner, inner + by), key=lambda i: abs(math.log(count(i) / budget)))
    if abs(count(best) / budget - 1) > TOLERANCE:
        raise UserError(
            f"feed_forward.map {spec.map}: no inner width comes within 5 % of {budget:,} parameters at width {width}: choose another "
            "width or ff_dim, or name feed_forward.inner"
        )
    return best


def projections_size(spec: Projections | None, width: int, met: float = 0) -> MapSize:
    """What attention's replaced projections are larger than its own of width x width with a bias.

    met : keys that a query meets in the mean, which a wider score or wider values are multiplied with
    """
    if spec is None:
        return MapSize(0, 0)
    maps = [map_size(spec, inputs, outputs, width) for inputs, outputs in spec.widths(width).values()]
    wider = (("q" in spec.of) + ("v" in spec.of)) * ((spec.inner or width) - width)
    return MapSize(
        sum(one.parameters - width * width - width for one in maps),
        sum(one.macs - width * width for one in maps) + wider * met,
    )


def added(replaced: Replacements, width: int, ff_dim: int, feed_forwards: int, met: float = 0) -> MapSize:
    """What one block is larger than with nothing replaced; it has so many feed-forward modules, and a query meets so many keys."""
    own, ours = block_size(None, width, ff_dim), block_size(replaced.feed_forward, width, ff_dim)
    extra = projections_size(replaced.projections, width, met)
    return MapSize(
        feed_forwards * (ours.parameters - own.parameters) + extra.parameters,
        feed_forwards * (ours.macs - own.macs) + extra.macs,
    )


def check_replaced(replaced: Replacements, width: int, ff_dim: int, mixer: Mapping[str, Any]) -> None:
    """`UserError` for what does not fit the width or the arm's mixer."""
    if (maps := replaced.projections) is not None:
        _named("projections", lambda: projections_size(maps, width))
        if maps.inner is not None and (
            mixer["mixer"] != "multivector_attention" or mixer.get("rotors") or mixer.get("value_terms")
        ):
            raise UserError(
                "projections.inner: only multivector_attention without rotors and value_terms takes it: leave it out"
            )
        if maps.inner is not None:
            arguments_of(mixer, causal=True).check(maps.inner, "projections.inner")
    if replaced.feed_forward is not None:
        _named("feed_forward", lambda: block_size(replaced.feed_forward, width, ff_dim))
    if (embedding := replaced.embedding) is not None:
        dim = sum(components(LinearMap(map="clifford", signature=embedding.signature, grades=embedding.grades)))
        if width % dim:
            raise UserError(f"embedding: width {width} is not a multiple of the algebra's {dim} components")


def _named(where: str, call) -> None:
    try:
        call()
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
