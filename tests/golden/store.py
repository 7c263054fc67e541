"""Golden values on disk: what a tiny instance of each mixer and model gave when its version was last raised."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from geomix.files import read_json, write_text

FOLDER = Path(__file__).parent
WRITE = "python -m tests.golden.write"
TOLERANCE = 1e-6
"""Largest deviation of a number, relative to the largest of its list: more than processors differ by in float64."""

_FREQUENCIES = np.sqrt([2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17, 19])

Values = dict[str, list[float]]
"""What was computed (output, loss, gradient) -> its numbers."""


@dataclass(frozen=True)
class Case:
    """One instance that has golden values.

    name : of the instance; of : the mixer or model whose code it runs; version : that one's, today
    """

    name: str
    of: str
    version: int
    compute: Callable[[], Values]


@dataclass(frozen=True)
class Golden:
    """Stored values, and the version whose they are."""

    version: int
    values: Values


def figures(*tensors: Tensor) -> list[float]:
    """Twelve numbers in which each element of the tensors has a share: their products with cosines of as many frequencies."""
    flat = np.concatenate([tensor.detach().double().flatten().numpy() for tensor in tensors])
    waves = np.cos(np.outer(_FREQUENCIES, np.arange(1, len(flat) + 1)))
    return [float(f"{number:.12g}") for number in waves @ flat / np.sqrt(len(flat))]


def read(path: Path) -> dict[str, Golden]:
    """All golden values of a file, by the case's name; none when there is no file."""
    found = read_json(path) if path.exists() else {}
    return {name: Golden(entry["version"], entry["values"]) for name, entry in found.items()}


def write(path: Path, golden: dict[str, Golden]) -> None:
    """Write golden values, a case a line."""
    lines = [
        f"{json.dumps(name)}: {json.dumps({'version': one.version, 'values': one.values})}"
        for name, one in golden.items()
    ]
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def fault(case: Case, stored: Golden | None, values: Values) -> str | None:
    """The sentence about a case whose values are not the stored ones, or None."""
    if stored is None:
        return f"{case.name}: has no golden values: write them with `{WRITE}`"
    if stored.version != case.version:
        return (
            f"{case.name}: its golden values are of version {stored.version}, and {case.of} has version {case.version}: "
            f"write them anew with `{WRITE}`"
        )
    if _equal(stored.values, values):
        return None
    return (
        f"{case.name}: its output has changed: raise its version (its arguments.py in src/geomix/mixers or settings/trainings.py "
        f"MODEL_VERSIONS), then write the golden values anew with `{WRITE}`"
    )


def _equal(stored: Values, values: Values) -> bool:
    """Whether all numbers are the stored ones up to rounding; a NaN equals nothing."""
    return stored.keys() == values.keys() and all(
        len(stored[key]) == len(values[key])
        and np.abs(np.subtract(stored[key], values[key])).max() <= TOLERANCE * np.abs(stored[key]).max()
        for key in stored
    )


def renewed(path: Path, cases: Iterable[Case]) -> tuple[dict[str, Golden], list[str]]:
    """Golden values as they are to be written, and a sentence for each case that is not written.

    Values that have changed under the same version are no golden ones: the version is to be raised first.
    """
    stored, golden, refused = read(path), {}, []
    for case in cases:
        values, old = case.compute(), stored.get(case.name)
        if old is not None and old.version == case.version and not _equal(old.values, values):
            refused.append(
                f"{case.name}: its output has changed and its version, {case.version}, has not: raise that first, or, when "
                f"the case itself was edited, take its line out of {path.name}"
            )
            golden[case.name] = old
        elif old is not None and old.version == case.version:
            golden[case.name] = old  # rounding on this machine is no reason for a new file
        else:
            golden[case.name] = Golden(case.version, values)
    return golden, refused
