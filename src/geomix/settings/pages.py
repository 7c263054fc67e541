"""config/schema.json and config/README.md, both made from the sections: every key with its type, default, meaning and reach."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from geomix.settings.arms import LANGUAGE_ARMS, SPEECH_ARMS, name_of
from geomix.settings.base import STAGES, Section, extra_of, section_of
from geomix.settings.config import Config


def schema() -> str:
    """JSON schema of a configuration file. Nothing is required in it: an overlay names only what it changes."""
    found = Config.model_json_schema(mode="validation")
    _simplify(found)
    found = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "title": "geomix configuration",
        "description": "Made by `geomix settings --write` from src/geomix/settings/; do not edit.",
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _simplify(value: Any) -> None:
    if isinstance(value, dict):
        # of a section that takes any other key, what is required tells it apart
        own = value.get("additionalProperties") is True
        for name in ("required",) * (not own) + ("reach", "before", "override", "discriminator"):
            if not isinstance(value.get(name), dict) or name == "discriminator":
                value.pop(name, None)
        if isinstance(value.get("oneOf"), list):
            value["anyOf"] = value.pop("oneOf")
        for inner in value.values():
            _simplify(inner)
    elif isinstance(value, list):
        for inner in value:
            _simplify(inner)


@dataclass(frozen=True)
class Key:
    """A key of the configuration: the section it stands in, its path (NAME: an arm's, *: each entry) and its field.

    kind : of an arm's key, the mixer or architecture of that arm.
    """

    section: str
    path: str
    field: FieldInfo
    kind: str | None = None


def keys() -> Iterator[Key]:
    """Every key, sections in the configuration's order; those of arms once for each kind of arm."""
    inside_arms = set()
    for found in _keys("the study", "", Config, None):
        # what an arm replaces beside the mixer is the same for every mixer
        if found.kind and "." in found.path.partition(".NAME.")[2]:
            if found.path in inside_arms:
                continue
            inside_arms.add(found.path)
        yield found


def _keys(title: str, prefix: str, section: type[Section], kind: str | None) -> Iterator[Key]:
    inner = []
    for name, field in section.model_fields.items():
        path = f"{prefix}{name}"
        if name == "arms" and prefix in ("", "language."):
            for arm in SPEECH_ARMS if not prefix else LANGUAGE_ARMS:
                what = "architecture" if "architecture" in arm.model_fields else "mixer"
                inner.append((f"`{path}.NAME` with `{what}: {name_of(arm)}`", f"{path}.NAME.", arm, name_of(arm)))
        elif (
            name == "arms" and get_origin(field.annotation) is dict
        ):  # those of a phase: described where the study's are
            yield Key(title, path, field, kind)
        elif (found := section_of(field.annotation)) and not _is_plain(field.annotation):
            where = f"{path}." if get_origin(field.annotation) not in (list, dict) else f"{path}.*."
            inner.append((f"`{path}`", where, found, kind))
            if _has_value(field):
                yield Key(title, path, field, kind)
        else:
            yield Key(title, path, field, kind)
    for each in inner:
        yield from _keys(*each)


def _is_plain(annotation: Any) -> bool:
    """A union of a section and plain values (such as held-out speakers) is a key of its own."""
    parts = [
        getattr(part, "__origin__", part) if hasattr(part, "__metadata__") else part for part in get_args(annotation)
    ]
    return get_origin(annotation) not in (list, dict) and any(get_origin(part) in (list, dict) for part in parts)


def _has_value(field: FieldInfo) -> bool:
    """A section that may be null is a key too."""
    return type(None) in get_args(field.annotation)


def type_in_words(annotation: Any) -> str:
    """`whole number`, `list of text`, `a | b`."""
    names = {int: "whole number", float: "number", str: "text", bool: "true/false", type(None): "null"}
    if annotation in names:
        return names[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " / ".join(map(str, parts))
    if hasattr(annotation, "__metadata__"):
        return type_in_words(annotation.__origin__)
    if origin is list:
        return f"list of {type_in_words(parts[0])}"
    if origin is dict or origin is Mapping:
        return "dictionary"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "section"
    if parts:
        return " or ".join(dict.fromkeys(type_in_words(part) for part in parts))
    return str(annotation)


def _bounds(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "multiple_of": "multiple of"}
    items = list(field.metadata)
    for part in (field.annotation, *get_args(field.annotation)):
        items += [found for found in getattr(part, "__metadata__", ())]
    expanded = [part for item in items for part in getattr(item, "metadata", [item])]
    texts = [
        f"{sign} {getattr(item, name)}"
        for item in expanded
        for name, sign in signs.items()
        if getattr(item, name, None) is not None
    ]
    return ", ".join(dict.fromkeys(texts))


def _default(field: FieldInfo) -> str:
    if extra_of(field).get("override"):
        return "-"
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def reach_of(field: FieldInfo) -> list[str]:
    """Stages whose settings a key is part of."""
    return extra_of(field).get("reach", [])


def readme() -> str:
    """config/README.md."""
    lines = [
        "# Configurations",
        "",
        "`config.yaml` at the root is the full study and holds what a person decides. The files here are overlays, laid over it in the order",
        "in which they are named: `snakemake --configfile config/an4.yaml config/espnet.yaml`. Dictionaries are merged key by key, lists are replaced.",
        "Every key below has its default in `src/geomix/settings/`, from which this page and `schema.json` are made (`geomix settings --write`).",
        "",
        "**Reach** names the stages whose settings a key is part of. A changed key runs those stages again, and what reads what they make; a training",
        "whose settings and data are as before is restored from `state/<hash>/`, never done again. *nothing*: the key changes no result, and nothing runs",
        "again but the check of the counts in `corpus.expected`. Another `run` or `algebra.run` is an empty folder of results, filled from the same store of",
        "trainings. [docs/reruns.md](../docs/reruns.md) says the rest: forced runs, deleted files, edited recordings, changed code.",
        "",
        *_reach_table(),
    ]
    title = None
    for found in keys():
        path, field = found.path, found.field
        if found.section != title:
            title = found.section
            lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
            lines += ["| key | type | default | meaning | reach |", "| --- | --- | --- | --- | --- |"]
        kind = type_in_words(field.annotation)
        if bounds := _bounds(field):
            kind += f", {bounds}"
        reach = ", ".join(reach_of(field)) or "nothing"
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{path}` | {kind} | {_default(field)} | {meaning} | {reach} |")
    return "\n".join(lines) + "\n"


def _reach_table() -> list[str]:
    rows: dict[tuple[str, ...], list[str]] = {}
    for found in keys():
        reached = reach_of(found.field)
        rows.setdefault(tuple(stage for stage in STAGES if stage in reached), []).append(f"`{found.path}`")
    lines = ["## What a changed key runs again", "", "| stages | keys |", "| --- | --- |"]
    for stages, paths in sorted(rows.items(), key=lambda row: [STAGES.index(s) for s in row[0]] or [99]):
        lines.append(f"| {', '.join(stages) or 'nothing'} | {' '.join(dict.fromkeys(paths))} |")
    return lines
