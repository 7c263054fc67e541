"""One sentence for what is wrong with a configuration: the key's path, the value, and the cure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from geomix.settings.arms import OWN, TAG

# YAML 1.1 reads 1e-3 as text: a number needs a point
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?")


def suggest(name: Any, known: Iterable[Any]) -> str:
    """`did you mean 'x'?`, or the names that are known."""
    known = [str(each) for each in known]
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"


def explain(error: ValidationError, config: Any, keys_at: Any) -> str:
    """The sentence of the first fault, without the word `config` before it.

    config : what was validated; keys_at : (path, value there) -> the keys that a section at that path takes
    """
    faults = [_Fault(each, config) for each in error.errors(include_url=False)]
    # of a union each member complains: what lies deepest is about the form that was meant
    fault = max(faults, key=lambda f: (f.unknown_key, f.is_decimal, -f.depth_of_union, len(f.path)))
    return fault.sentence(keys_at)


class _Fault:
    def __init__(self, error: dict[str, Any], config: Any):
        self.kind, self.value, self.context = error["type"], error["input"], error.get("ctx", {})
        self.message = error["msg"]
        path, place = [], config
        self.depth_of_union = 0
        for part in error["loc"]:
            if isinstance(part, str) and part.startswith(TAG):
                continue
            inner = _inside(place, part)
            if inner is _NOTHING and self.kind not in ("missing",):
                self.depth_of_union += 1  # the name of a union's member, such as list[...]
                continue
            path.append(part)
            place = inner
        self.path = path
        self.unknown_key = self.kind == "extra_forbidden"
        self.is_decimal = self.kind == "int_type" and isinstance(
            self.value, float
        )  # of a union: 4096.0 where 4096 is meant

    def sentence(self, keys_at: Any) -> str:
        where = ".".join(map(str, self.path)) or "top level"
        value = self.value
        if self.unknown_key:
            parent = ".".join(map(str, self.path[:-1])) or "top level"
            return f"{parent}: unknown key {self.path[-1]!r}: {suggest(self.path[-1], keys_at(self.path[:-1]))}"
        if self.kind == "missing":
            parent = ".".join(map(str, self.path[:-1])) or "top level"
            return f"{parent}: needs the key {self.path[-1]!r}: add it"
        if value is None:
            return f"{where}: has no value: give it one, or leave the line out"
        if self.kind in ("union_tag_invalid", "union_tag_not_found"):
            return self._arm(where)
        if self.kind == "value_error":
            return f"{where}: {value!r} {self.context.get('error', self.message)}"
        if self.is_decimal:
            cure = f": write {value:.0f}" if value.is_integer() else ""
            return f"{where}: {value!r} is not a whole number{cure}"
        if self.kind in ("int_type", "float_type") and isinstance(value, str) and _EXPONENT.fullmatch(value):
            mantissa, _, exponent = value.lower().partition("e")
            mantissa += "" if "." in mantissa else ".0"
            exponent = exponent if exponent[0] in "+-" else f"+{exponent}"
            return f"{where}: YAML reads {value} as text, not as a number: write {mantissa}e{exponent}"
        if self.kind in ("int_type", "float_type") and isinstance(value, str) and _NUMBER.fullmatch(value):
            return f"{where}: {value!r} is text, not a number: write it without quotes, in a file (Snakemake's --config makes text of it)"
        if self.kind == "finite_number":
            return f"{where}: {value} is not a finite number"
        if self.kind == "literal_error":
            return f"{where}: {value!r} is not one of {self._choices()}"
        return f"{where}: {value!r} {self._bound()}"

    def _choices(self) -> str:
        return self.context["expected"].replace("'", "").replace(" or ", ", ")

    def _arm(self, where: str) -> str:
        names = self.context.get("expected_tags", "").replace(TAG, "").replace("'", "")
        tag = str(self.context.get("tag", "")).removeprefix(TAG)
        if not tag:
            return f"{where}: names no mixer: give it one, such as mixer: attention"
        if tag == OWN:
            return (
                f"{where}: a mixer of your own fits an arm of the speech study alone: {suggest(tag, names.split(', '))}"
            )
        return f"{where}: {tag!r} is no mixer or architecture of the house: {suggest(tag, names.split(', '))}"

    def _bound(self) -> str:
        context = self.context
        words = {
            "greater_than_equal": "is less than {ge}, the least that is allowed",
            "greater_than": "must be more than {gt}",
            "less_than": "must be less than {lt}",
            "less_than_equal": "is more than {le}, the most that is allowed",
            "multiple_of": "is not a multiple of {multiple_of}",
            "too_short": "needs at least {min_length} entries",
            "too_long": "takes at most {max_length} entries",
            "string_too_long": "has more than {max_length} letters",
            "string_pattern_mismatch": "is no name: use letters, digits, '.', '_' and '-', a letter or digit first",
            "int_type": "is not a whole number",
            "float_type": "is not a number",
            "string_type": "is not text: put it in quotes",
            "bool_type": "is not true or false",
            "list_type": "is not a list: write [a, b]",
            "dict_type": "is not a dictionary of keys",
            "model_type": "is not a dictionary of keys",
            "model_attributes_type": "is not a dictionary of keys",
        }
        return words.get(self.kind, self.message.lower()).format(**context)


_NOTHING = object()


def _inside(place: Any, part: Any) -> Any:
    try:
        return place[part]
    except (KeyError, IndexError, TypeError):
        return _NOTHING
