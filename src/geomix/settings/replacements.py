"""What an arm may replace beside the mixer: feed-forward maps, attention's projections, the embedding, the positions.

A part that is not named is the model's own. What is replaced draws its first weights from a stream of its own, so that all
else starts as in the arm that replaces nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from geomix.mixers.own.source import is_own
from geomix.settings.base import Count, NotNegative, Section, Unique, key, override

MapName = Literal["dense", "low_rank", "grouped", "complex", "quaternion", "clifford", "multivector"]
Whole = Annotated[int, Field(ge=0)]
Signature = Annotated[list[Whole], Field(min_length=3, max_length=3)]
Grades = Annotated[list[Whole], Field(min_length=1), Unique]

READ_BY = {
    "rank": ("low_rank",),
    "groups": ("grouped",),
    "table": ("complex", "quaternion", "clifford", "multivector"),
    "two_sided": ("complex", "quaternion", "clifford"),
    "signature": ("clifford", "multivector"),
    "grades": ("clifford", "multivector"),
    "terms": ("multivector",),
    "tying": ("multivector",),
    "factors": ("multivector",),
}
"""Key of a map -> the maps that read it."""


class LinearMap(Section):
    """Linear maps in the place of dense ones."""

    map: MapName = key(
        "dense",
        "how a map shares its numbers: low rank, diagonal blocks, one number of an algebra a pair of channels; dense: not",
        "train report",
    )
    rank: Count | None = key(
        None, "low_rank: inner width of a map; null: two fifths of the model's width", "train report"
    )
    groups: Count = key(4, "grouped: diagonal blocks", "train report")
    table: Literal["true", "shuffled", "gauge"] = key(
        "true",
        "products of the algebra; under random signs, others for each seed; gauge: the algebra under other names",
        "train report",
    )
    two_sided: bool = key(False, "sum of A x B over the channels instead of A x", "train report")
    signature: Signature = key(
        [3, 0, 0], "clifford, multivector: basis vectors that square to +1, -1 and 0", "train report"
    )
    grades: Grades | None = key(None, "clifford, multivector: grades that are retained; null: all", "train report")
    terms: Whole = key(
        0, "multivector: terms A x B; 0: channels are mixed grade by grade, nothing else", "train report"
    )
    tying: Literal["grade", "component"] = key("grade", "multivector: what shares a channel weight", "train report")
    factors: Grades | None = key(
        None, "multivector: grades of A and B, [0, 2] for even ones; null: all", "train report", before=None
    )

    @model_validator(mode="after")
    def _own_keys(self) -> LinearMap:
        for name, maps in READ_BY.items():
            default = LinearMap.model_fields[name].get_default(call_default_factory=True)
            if self.map not in maps and getattr(self, name) != default:
                raise ValueError(f"gives {name} to the map {self.map}, which is read by {', '.join(maps)} alone")
        return self


class FeedForward(LinearMap):
    """Both maps of every feed-forward block; their weights start at a standard deviation of inputs ** -0.5, biases at 0."""

    inner: Count | None = key(
        None, "inner width; null: nearest to the parameters of the dense block of ff_dim", "train report"
    )
    inner_of: MapName | None = key(
        None, "the inner width that this map would have: a dense block with clifford's FLOPs", "train report"
    )


class Projections(LinearMap):
    """Linear maps of attention's queries, keys, values and output."""

    of: Annotated[list[Literal["q", "k", "v", "out"]], Field(min_length=1), Unique] = key(
        ["q", "k", "v", "out"], "which of them", "train report"
    )
    inner: Count | None = key(
        None,
        "multivector_attention: width between the maps of a replaced pair (q and k, v and out); null: the model's",
        "train report",
        before=None,
    )

    @model_validator(mode="after")
    def _pairs(self) -> Projections:
        if self.inner is not None and ("q" in self.of) != ("k" in self.of):
            raise ValueError("gives inner to one of q and k: both have one width, name both or none")
        if self.inner is not None and ("v" in self.of) != ("out" in self.of):
            raise ValueError("gives inner to one of v and out: what one makes the other takes, name both or none")
        return self

    def widths(self, width: int) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of each replaced map in a model of this width."""
        inner = self.inner or width
        return {role: (inner, width) if role == "out" else (width, inner) for role in self.of}


class Embedding(Section):
    """Token embeddings as multivectors, each grade a parameter of its own; they start as the scalar ones."""

    signature: Signature = key([3, 0, 0], "basis vectors that square to +1, -1 and 0", "train report")
    grades: Grades | None = key(None, "grades that are retained; null: all", "train report")
    higher_grades: NotNegative = key(1.0, "factor on the first values of grades above 0", "train report")


class Positions(Section):
    """Positions that the model adds to its input, beside those of the mixer."""

    table: Literal["learned", "none"] = key("none", "learned: the model's own table; none: no table", "train report")


class FeedForwardReplaced(Section):
    """What an arm with any mixer may replace."""

    feed_forward: FeedForward | None = override("both maps of each feed-forward module", "train report")


class ProjectionsReplaced(Section):
    """What an arm with attention may replace besides."""

    projections: Projections | None = override("attention's linear maps", "train report")


class TextReplaced(Section):
    """What an arm of a language model may replace besides."""

    embedding: Embedding | None = override("token embeddings as multivectors", "train report")
    positions: Positions | None = override("the learned position table", "train report")


class Replacements(FeedForwardReplaced, ProjectionsReplaced, TextReplaced):
    """All that an arm replaces beside the mixer; what it does not name is None."""


REPLACEABLE = tuple(Replacements.model_fields)
"""Keys of an arm that name what it replaces beside the mixer."""
WITH_PROJECTIONS = ("attention", "multivector_attention")
"""Mixers whose linear maps an arm may replace."""


def split_replaced(arm: dict[str, Any], *, text: bool = False) -> dict[str, Any]:
    """Take what an arm replaces beside the mixer out of its keys; {} for nothing. Other keys of a user's own mixer are its arguments.

    text : whether the arm is of a language model
    """
    own = (*FeedForwardReplaced.model_fields, *(TextReplaced.model_fields if text else ()))
    names = own if is_own(arm.get("mixer")) else REPLACEABLE
    return {name: arm.pop(name) for name in names if name in arm}


def replacements_of(values: Mapping[str, Any] | None) -> Replacements:
    """Plain values of `split_replaced` as their types; what is not named is None."""
    return Replacements(**{name: dict(value) for name, value in (values or {}).items()})


def in_words(replaced: Mapping[str, Any]) -> list[str]:
    """`feed_forward clifford table=shuffled` for each part that an arm replaces: its map, and what is no default."""
    said = []
    parts = replacements_of(replaced)
    for name in replaced:
        section = getattr(parts, name)
        first = "table" if isinstance(section, Positions) else "map"  # said whether or not it is the default
        values = {first: getattr(section, first)} if hasattr(section, first) else {}
        values |= section.model_dump(exclude_defaults=True)
        said.append(" ".join([name, *(str(v) if k == "map" else f"{k}={v}" for k, v in values.items())]))
    return said
