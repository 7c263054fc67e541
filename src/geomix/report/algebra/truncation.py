"""The page of truncation: error beside retained components and cost, what products lose, and where random signs do as well."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object, write_json, write_text
from geomix.report.algebra.page import machine_line, remark
from geomix.report.columns import Column, Table, thousands
from geomix.report.figures import COLOURS, MARKERS, draw
from geomix.report.pages import render
from geomix.settings.algebra_truncation import ARMS, DECLARED, SPARSE, Cell, Truncated, cells
from geomix.statistics.geometry import Verdict, decide, enough, stops_separating, table_medians


@dataclass(frozen=True)
class Job:
    """What the job of a cell wrote."""

    cell: Cell
    found: Mapping[str, Any]

    def arm(self, name: str = "clifford") -> Mapping[str, Any] | None:
        return self.found["arms"].get(name)

    def error(self, name: str = "clifford") -> float | None:
        """Median over tables of the median over seeds."""
        return float(np.median(table_medians(arm["errors"]))) if (arm := self.arm(name)) else None

    @cached_property
    def verdict(self) -> Verdict:
        """Phase 1's rule on this cell."""
        errors = {arm: self.arm(arm)["errors"] for arm in ARMS}
        declared = DECLARED[self.cell.task]
        return decide(errors, factor=declared.factor, all_plus_fails=declared.all_plus_fails)


@dataclass(frozen=True)
class Row:
    """A task in n dimensions with all its truncations, in order of rising grades."""

    declared: Truncated
    n: int
    jobs: tuple[Job, ...]

    @property
    def enough(self) -> str:
        """Grades from which on the error is within the factor of the least."""
        return enough({str(job.cell.kept): job.error() for job in self.jobs}, self.declared.factor)

    @property
    def stops(self) -> str | None:
        """The highest truncation at which some random table does as well."""
        return stops_separating({str(job.cell.kept): (job.verdict.separated, job.verdict.tables) for job in self.jobs})


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


CELLS = (
    Column("task", lambda j: j.cell.task),
    Column("n", lambda j: j.cell.n),
    Column("kept", lambda j: j.cell.kept, "grades to"),
    Column("components", lambda j: j.arm()["components"]),
    Column("parameters", lambda j: j.arm()["parameters"], show=thousands),
    Column("flops", lambda j: j.arm()["flops"], "FLOPs", thousands),
    Column("step_ms", lambda j: 1e3 * j.arm()["step_seconds"], "step, ms", "{:.2f}".format, lambda v: round(v, 3)),
    Column("error", lambda j: j.error(), show="{:.2g}".format, csv=lambda v: f"{v:.4g}"),
    *(
        Column(
            arm,
            lambda j, arm=arm: j.error(arm),
            arm.replace("_", " "),
            _ratio,
            lambda v: "" if v is None else f"{v:.4g}",
        )
        for arm in (*ARMS[1:], *SPARSE)
    ),
    Column("worse", lambda j: f"{j.verdict.separated} of {j.verdict.tables}", "random tables worse"),
    Column("verdict", lambda j: j.verdict.verdict),
)
LOST = (
    Column("n", lambda j: j.cell.n),
    Column("kept", lambda j: j.cell.kept, "grades to"),
    Column("components", lambda j: j.arm()["components"]),
    *(
        Column(name, lambda j, name=name: j.found["loss"][name], title, "{:.2g}".format)
        for name, title in (("left", "lost by (ab)c"), ("right", "lost by a(bc)"), ("associator", "between the orders"))
    ),
)
ROWS = (
    Column("task", lambda r: r.declared.title),
    Column("n", lambda r: r.n),
    Column("declared", lambda r: r.declared.least if not r.declared.null else "-", "grades for an exact product"),
    Column("enough", lambda r: r.enough, "grades that are enough"),
    Column("stops", lambda r: r.stops or "none", "highest grades at which a random table does as well"),
)


def build_truncation(folder: str | os.PathLike, settings: Mapping[str, Any]) -> None:
    """Write truncation.md, .csv, .json and figures/truncation of `folder`, the run's results, from the jobs in truncation/."""
    folder = Path(folder)
    read = lambda cell: read_object(folder / "truncation" / f"{cell.name}.json", "arms", "loss", "record")
    jobs = [Job(cell, read(cell)) for cell in cells(settings)]
    rows = [
        Row(DECLARED[task], n, tuple(group))
        for (task, n), group in groupby(jobs, key=lambda job: (job.cell.task, job.cell.n))
    ]
    summary = _summary(rows)
    write_text(folder / "truncation.csv", Table.of(CELLS, jobs).csv())
    draw("truncation", folder / "figures", lambda: _figure(rows))
    said = {
        f"{row.declared.name}-n{row.n}": {
            "enough": row.enough,
            "ties_up_to": row.stops,
            "verdicts": {str(job.cell.kept): job.verdict.verdict for job in row.jobs},
        }
        for row in rows
    }
    write_json(folder / "truncation.json", {"summary": summary, "rows": said})
    lost = {(job.cell.n, job.cell.top): job for job in jobs}
    page = render(
        "algebra_truncation.md",
        summary=summary,
        settings=settings,
        machine=machine_line(job.found["record"] for job in jobs),
        rows=Table.of(ROWS, rows),
        cells=Table.of(CELLS, jobs),
        lost=Table.of(LOST, [lost[key] for key in sorted(lost)]),
        declared=[DECLARED[task] for task in settings["tasks"]],
        remarks=remark(folder, "truncation"),
    )
    write_text(folder / "truncation.md", page)


def _summary(rows: Iterable[Row]) -> str:
    clauses = []
    for name, group in groupby(rows, key=lambda row: row.declared.name):
        found = list(group)
        kept = ", ".join(f"{row.enough} in n = {row.n}" for row in found)
        ties = [f"{row.stops} in n = {row.n}" for row in found if row.stops]
        clauses.append(
            f"{name}: grades up to {kept} are enough"
            + (
                f"; a random table does as well at grades up to {', '.join(ties)}"
                if ties
                else "; random signs are always worse"
            )
        )
    return ". ".join(clauses)


def _figure(rows: list[Row]):
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(row.declared.name for row in rows))
    figure = Figure(figsize=(4.2 * len(tasks), 3.9), layout="constrained")
    costs = [job.arm()["flops"] for row in rows for job in row.jobs]
    size = lambda flops: 12 + 120 * flops / max(costs)
    for ax, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        for row in (row for row in rows if row.declared.name == task):
            look = {"color": COLOURS[row.n - 4], "marker": MARKERS[row.n - 4]}
            x = [job.arm()["components"] for job in row.jobs]
            ax.plot(x, [job.error() for job in row.jobs], lw=1.3, color=look["color"], label=f"n = {row.n}")
            ax.plot(x, [job.error("shuffled") for job in row.jobs], lw=0.9, ls=(0, (2, 3)), color=look["color"])
            for job in row.jobs:
                ax.scatter([job.arm()["components"]], [job.error()], s=size(job.arm()["flops"]), alpha=0.75, **look)
                for arm in (a for a in SPARSE if job.arm(a)):
                    sparse = job.arm(arm)
                    ax.scatter([sparse["components"]], [job.error(arm)], s=size(sparse["flops"]), facecolors="none", edgecolors=look["color"])  # fmt: skip
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xlabel("retained components")
        ax.set_title(DECLARED[task].title, fontsize=9)
        ax.set_ylabel("squared error / variance")
        ax.legend(frameon=False, fontsize=8)
    return figure
