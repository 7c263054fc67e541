"""The study of truncation as it was declared before the run: tasks on vectors in n = 4, 5, 6, and what each kept grade should do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from geomix.settings.algebra import KeptGrades, TruncationTask

ALL = "all"
SPARSE = {"planes_third": 1 / 3, "planes_two_thirds": 2 / 3}
"""Arm -> share of the planes whose bivectors the products keep, beside grades 0 and 1, where grades up to 2 are kept."""
ARMS = ("clifford", "shuffled", "gauge", "all_plus", "dense")


@dataclass(frozen=True)
class Truncated:
    """What was said of a task before the run.

    least : the least grade up to which all must be kept for products of two factors at a time to hold the target exactly
    holds : the least grade that input and target need at all
    factor : an arm separates from Clifford when its error is at least so many times Clifford's
    """

    name: str
    title: str
    least: int
    holds: int
    why: str
    factor: float = 2.0
    all_plus_fails: bool = False
    null: bool = False


DECLARED: dict[str, Truncated] = {
    task.name: task
    for task in (
        Truncated(
            "turn", "<(1+ba) c (1+ab)>_1 / 4 of three vectors", 3, 1,
            "(1+ba)c has a trivector; the target is made of dot products, so that grade 1 can build it from more terms",
        ),
        Truncated(
            "chain", "<a b c d e>_1 of five vectors", 3, 1,
            "15 terms of two dot products and a vector; (ab)c has a trivector, nothing in ((ab)c)(de) a higher grade that matters",
        ),
        Truncated(
            "rotors", "<R3 R2 R1>_{0,2} of three simple rotors", 4, 2,
            "R2 R1 has a 4-vector, which R3 turns back into a bivector", all_plus_fails=True,
        ),
        Truncated(
            "null", "null: random tanh network of three vectors", 0, 1, "no table knows it", factor=1.1, null=True,
        ),
    )
}  # fmt: skip
assert tuple(DECLARED) == TruncationTask.__args__


@dataclass(frozen=True)
class Cell:
    """A job: a task in n dimensions with grades kept up to a number, or `all`."""

    task: str
    n: int
    kept: KeptGrades

    @property
    def name(self) -> str:
        """Its file, without the end."""
        return f"{self.task}-n{self.n}-k{self.kept}"

    @property
    def top(self) -> int:
        """The highest grade that is kept."""
        return self.n if self.kept == ALL else self.kept

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms of the job."""
        return (*ARMS, *(SPARSE if self.top == 2 and self.task != "rotors" else ()))


def cells(truncation: Mapping[str, Any]) -> Iterator[Cell]:
    """The jobs: every task, dimension and number of kept grades that can hold the task's inputs and target."""
    for task in truncation["tasks"]:
        for n in truncation["dimensions"]:
            for kept in truncation["grades"]:
                cell = Cell(task, n, kept)
                if DECLARED[task].holds <= cell.top <= n and (kept == ALL or kept < n):
                    yield cell


def cell_settings(truncation: Mapping[str, Any], name: str) -> dict[str, Any]:
    """All that decides the outcome of the job of this name."""
    cell = next(cell for cell in cells(truncation) if cell.name == name)
    keys = ("tables", "gauge_tables", "seeds", "steps", "learning_rate", "parameters")
    return {"task": cell.task, "n": cell.n, "kept": cell.kept} | {key: truncation[key] for key in keys}
