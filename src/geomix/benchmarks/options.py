"""Options of a benchmark: a dataclass, from which `geomix bench` makes the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def option(default: Any, help: str, *, choices: tuple[str, ...] | None = None, parse: Callable | None = None) -> Any:
    """A field of `Options`. Its annotation says what is accepted: int whole numbers from 1 on, float numbers above 0.

    A tuple takes several values, apart or in one argument, separated by blanks; `parse` reads such an argument its own way.
    """
    return field(default=default, metadata={"help": help, "choices": choices, "parse": parse})


@dataclass(frozen=True, kw_only=True)
class Common:
    """What nearly all benchmarks take."""

    out: Path = option(Path("results/bench"), "folder of what is written")
    threads: int = option(1, "CPU threads")
