"""Packages whose names are imported when first asked for, so that reading a mixer's arguments imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`; `homes` says in which of its modules a name lives."""

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return attribute


def named(place: str) -> Any:
    """What `package.module:name` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
