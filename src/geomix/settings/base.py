"""What every section of the configuration is: types with bounds, a default, one explaining sentence and a reach for each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

STAGES = (
    "prepare", "features", "tokenizer", "train", "average", "decode", "score", "gate", "compare", "report",
)  # fmt: skip
"""Stages whose settings a key may be part of, in their order; what a stage makes reaches all that reads it."""


def unique(values: list) -> list:
    """Refuse a value that is listed twice."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"lists {value} twice: leave one out")
    return values


Unique = AfterValidator(unique)
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
Name = Annotated[str, Field(pattern=NAME, max_length=100)]  # a folder of results
Normaliser = Literal["none", "lower", "letters", "whisper-english"]
"""Names of the text normalisers (speech/normalisers.py)."""
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]  # numpy, to whose seeds epochs are added, takes 32 bits
Rate = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Names = Annotated[list[Name], Field(min_length=1), Unique]
Seeds = Annotated[list[Seed], Field(min_length=1), Unique]

_NO_BEFORE = object()


class Section(BaseModel):
    """A part of the configuration. A value is taken as it stands in the YAML file: 70.0 is no whole number, "1e-3" no number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


def key(default: Any = ..., meaning: str = "", reach: str = "", *, before: Any = _NO_BEFORE, **bounds: Any) -> Any:
    """A key of a section.

    Parameters
    ----------
    default : its value where no file names it; `...` for a key that must be named
    meaning : what it does, in one sentence
    reach : the stages (`STAGES`) whose settings it is part of, separated by spaces; empty: it changes no result
    before : for a key that was added later: the value that computes what was computed without it. At that value the
        key is left out of the hash of a training, so that a new key trains nothing again.
    bounds : as pydantic's `Field` takes them (ge, gt, le, lt, min_length, pattern, ...)
    """
    unknown = set(reach.split()) - set(STAGES)
    assert not unknown, unknown
    extra: dict[str, Any] = {"reach": reach.split()}
    if before is not _NO_BEFORE:
        extra["before"] = before
    if isinstance(default, list | dict):
        bounds["default_factory"] = lambda: type(default)(default)
    else:
        bounds["default"] = default
    return Field(description=meaning, json_schema_extra=extra, **bounds)


def override(meaning: str, reach: str, *, null_is_a_value: bool = False, **bounds: Any) -> Any:
    """A key that says nothing unless it is named: an arm's own value instead of the study's, an option of a decoder."""
    field = key(None, meaning, reach, **bounds)
    field.json_schema_extra |= {"override": True, "null_is_a_value": null_is_a_value}
    return field


def extra_of(field: FieldInfo) -> dict[str, Any]:
    """What `key` noted of a field beside pydantic's own: reach, before, override."""
    return field.json_schema_extra or {}


def resolved(value: Any) -> Any:
    """A section as plain values with every default filled in; an override that the arm does not name is left out."""
    if isinstance(value, Section):
        keys = {
            name: resolved(getattr(value, name))
            for name, field in type(value).model_fields.items()
            if not extra_of(field).get("override") or _is_named(value, name, field)
        }
        return keys | resolved(value.model_extra or {})
    if isinstance(value, Mapping):
        return {name: resolved(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(inner) for inner in value]
    return value


def _is_named(section: Section, name: str, field: FieldInfo) -> bool:
    """Whether an override says something: null takes it back, unless null is a value of the key that it stands for."""
    return name in section.model_fields_set and (
        getattr(section, name) is not None or bool(extra_of(field).get("null_is_a_value"))
    )


def without_before(values: Mapping[str, Any], section: type[Section]) -> dict[str, Any]:
    """Plain values of a section, without the keys that stand at the value which reproduces the time before them."""
    kept = {}
    for name, value in values.items():
        field = section.model_fields.get(name)
        if field is None:
            kept[name] = value
            continue
        extra = extra_of(field)
        if "before" in extra and value == extra["before"]:
            continue
        inner = section_of(field.annotation)
        kept[name] = without_before(value, inner) if inner and isinstance(value, Mapping) else value
    return kept


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a field holds, `Section | None` included; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := section_of(part))), None)
