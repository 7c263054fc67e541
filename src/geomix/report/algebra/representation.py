"""Phase 1's page: every task with its verdict, each arm's costs and errors, and what was expected beside what was found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object, write_json, write_text
from geomix.report.algebra.page import machine_line, remark
from geomix.report.columns import Column, Table, thousands
from geomix.report.figures import COLOURS, draw
from geomix.report.pages import render
from geomix.settings.algebra_jobs import arms_of
from geomix.settings.algebra_tasks import DECLARED, Declared
from geomix.statistics import geometry
from geomix.statistics.geometry import FLOORS, Found, Verdict, outcome, table_medians


@dataclass(frozen=True)
class Measured:
    """One arm on a task: what its job wrote, and the Clifford arm's beside it."""

    task: Declared
    arm: str
    job: Mapping[str, Any]
    clifford: Mapping[str, Any]

    @cached_property
    def medians(self) -> np.ndarray:
        """(tables,) median error over seeds."""
        return table_medians(self.job["errors"], self.task.metric)

    @property
    def ratios(self) -> np.ndarray:
        """(tables,) the same in multiples of Clifford's error."""
        return self.medians / float(table_medians(self.clifford["errors"], self.task.metric)[0])

    def to_clifford(self, budget: str) -> float:
        """`parameters` or `flops` in multiples of Clifford's."""
        return self.job[budget] / self.clifford[budget]

    def quantile(self, q: float, what: str = "errors") -> float:
        """Of the errors of all tables and seeds, or of those `beyond` the range of the training data."""
        return float(np.quantile(np.asarray(self.job[what], float), q))

    @property
    def name(self) -> str:
        """The arm, and whether it left the budget that is held by more than 5 %."""
        held = "flops" if self.arm == "wide_dense" and self.task.name != "fixed_rotation" else "parameters"
        off = self.to_clifford(held)
        return self.arm + ("" if abs(off - 1) <= 0.05 else " (over budget)" if off > 1 else " (under budget)")

    @property
    def span(self) -> str:
        table = self.job["tables"][0] if self.job.get("tables") else None
        return f"{table['span']}/{table['of']}" if table else ""

    @property
    def spread(self) -> str:
        low, middle, high = (_error(self.task, self.quantile(q)) for q in (0.25, 0.5, 0.75))
        return f"{middle} [{low}, {high}]"


def _to_clifford(name: str) -> Column:
    return Column(f"{name}_to_clifford", lambda m: m.to_clifford(name), csv=lambda v: round(v, 3))


def _quantile(name: str, q: float) -> Column:
    return Column(f"error_{name}", lambda m: m.quantile(q), csv=lambda v: f"{v:.4g}")


COLUMNS = (
    Column("task", lambda m: m.task.name),
    Column("arm", lambda m: m.arm),
    Column("metric", lambda m: m.task.metric),
    Column("tables", lambda m: len(m.job["errors"])),
    Column("seeds", lambda m: len(m.job["errors"][0])),
    Column("parameters", lambda m: m.job["parameters"], show=thousands),
    _to_clifford("parameters"),
    Column("flops", lambda m: m.job["flops"], "FLOPs", thousands),
    _to_clifford("flops"),
    Column("tangent_rank", lambda m: m.job["tangent_rank"], "rank", thousands),
    Column("step_ms", lambda m: 1e3 * m.job["step_seconds"], "step, ms", "{:.2f}".format, lambda v: round(v, 3)),
    Column("activation_bytes", lambda m: m.job["activation_bytes"], "kept, MB", lambda v: f"{v / 1e6:.2f}"),
    Column("peak_bytes", lambda m: m.job["record"]["peak_memory_bytes"], "peak, MB", lambda v: f"{v / 1e6:.0f}"),
    _quantile("q25", 0.25),
    _quantile("median", 0.5),
    _quantile("q75", 0.75),
    Column(
        "beyond_median",
        lambda m: m.quantile(0.5, "beyond") if "beyond" in m.job else None,
        "beyond range",
        "{:.2g}".format,
        lambda v: "" if v is None else f"{v:.4g}",
    ),
)
# on the page alone
SHOWN = (
    Column("name", lambda m: m.name, "arm"),
    Column("span", lambda m: m.span),
    Column("spread", lambda m: m.spread, "error, median [quartiles]"),
    Column("ratio", lambda m: _range(m.ratios), "× Clifford"),
)
SHUFFLED = (
    Column("table", lambda row: row.entry["name"]),
    Column("vectors that anticommute", lambda row: row.pairs(1)),
    Column("bivectors that anticommute", lambda row: row.pairs(2)),
    Column("associator", lambda row: row.entry["associator"], show="{:.2f}".format),
    Column("span", lambda row: f"{row.entry['span']}/{row.entry['of']}"),
    Column("error", lambda row: _error(row.of.task, row.of.medians[row.number])),
    Column("× Clifford", lambda row: row.of.ratios[row.number], show="{:.3g}".format),
    Column("", lambda row: outcome(float(row.of.medians[row.number]), row.clifford, row.of.task.factor)),
)
VERDICTS = (
    Column("task", lambda s: s.task.title),
    Column("Clifford", lambda s: _error(s.task, s.jobs["clifford"].quantile(0.5))),
    Column("shuffled, median of tables", lambda s: _error(s.task, s.jobs["shuffled"].quantile(0.5))),
    Column("tables worse", lambda s: f"{s.verdict.separated} of {s.verdict.tables}"),
    Column("verdict", lambda s: s.verdict.verdict),
)
DEPARTURES = (
    Column("task", lambda d: d.task),
    Column("arm", lambda d: d.found.arm),
    Column("expected", lambda d: f"{d.found.expected} ({d.found.why})"),
    Column("found", lambda d: f"{d.found.found}, {_range(d.found.ratios)} × Clifford"),
    Column("explanation, written after the run", lambda d: d.remark or "not explained"),
)


@dataclass(frozen=True)
class ShuffledTable:
    """One table of random signs: its number, what is known of it, and Clifford's error beside."""

    of: Measured
    number: int
    clifford: float

    @property
    def entry(self) -> Mapping[str, Any]:
        return self.of.job["tables"][self.number]

    def pairs(self, grade: int) -> str:
        found = self.entry[f"anticommuting_grade{grade}"]
        return "{} of {}".format(*found) if found[1] else "-"


@dataclass(frozen=True)
class Departure:
    """An expectation of a task that was not met, and what was written on it by hand."""

    task: str
    found: Found
    remark: str


@dataclass(frozen=True)
class Section:
    """A task with all that the page shows of it."""

    task: Declared
    jobs: Mapping[str, Measured]
    verdict: Verdict
    expected: list[Found]

    @property
    def clifford(self) -> Mapping[str, Any]:
        return self.jobs["clifford"].job

    @property
    def table(self) -> Table:
        beyond = ["beyond_median"] if "beyond" in self.clifford else []
        names = ["name", "tables", "parameters", "flops", "step_ms", "tangent_rank", "span", "activation_bytes"]
        names += ["peak_bytes", "spread", *beyond, "ratio"]
        return Table.of([*COLUMNS, *SHOWN], self.jobs.values()).pick(*names)

    @property
    def by_samples(self) -> Table | None:
        """Errors by number of pairs, where the job has them, with what theory gives."""
        if "by_samples" not in self.clifford:
            return None
        columns = [Column("arm", lambda m: m.arm), Column("parameters", lambda m: m.job["parameters"])]
        for n in sorted(self.clifford["by_samples"], key=int):
            columns.append(Column(f"N = {n}", lambda m, n=n: _pairs_cell(m.job, n)))
        return Table.of(columns, self.jobs.values())

    @property
    def floors(self) -> dict[str, float]:
        """Mean errors of estimators that know the geometry, by name."""
        found = self.clifford.get("floors") or [{}]
        return {name: float(np.mean([each[name] for each in found])) for name in found[0]}

    @property
    def shuffled(self) -> Table:
        of, clifford = self.jobs["shuffled"], float(self.jobs["clifford"].medians[0])
        return Table.of(SHUFFLED, [ShuffledTable(of, t, clifford) for t in range(len(of.job["tables"]))])


def build_representation(folder: str | os.PathLike, settings: dict[str, Any]) -> None:
    """Write representation.md, .csv, .json (verdicts and departures) and figures/representation of `folder`, the run's results."""
    folder = Path(folder)
    sections = [_section(folder / "representation", name, settings["arms"]) for name in settings["tasks"]]
    measured = [m for section in sections for m in section.jobs.values()]
    departures = [
        Departure(s.task.name, found, remark(folder, f"{s.task.name}/{found.arm}"))
        for s in sections
        for found in s.expected
        if found.departs
    ]
    summary = _summary([s for s in sections if not s.task.null])
    if nulls := [s for s in sections if s.task.null]:
        summary += f"; on the nulls, which have no geometry to use: {_summary(nulls)}"
    write_text(folder / "representation.csv", Table.of(COLUMNS, measured).csv())
    draw("representation", folder / "figures", lambda: _strips(sections))
    verdicts = {s.task.name: asdict(s.verdict) | {"sentence": s.verdict.sentence} for s in sections}
    for said in verdicts.values():
        del said["reason"]
    departed = [{"task": d.task, **asdict(d.found)} for d in departures]
    write_json(folder / "representation.json", {"summary": summary, "verdicts": verdicts, "departures": departed})
    page = render(
        "algebra_representation.md",
        summary=summary,
        settings=settings,
        sections=sections,
        verdicts=Table.of(VERDICTS, sections),
        machine=machine_line(m.job["record"] for m in measured),
        floors=FLOORS,
        rule=geometry.PHASE_1,
        expected=sum(len(s.expected) for s in sections),
        departures=Table.of(DEPARTURES, departures),
    )
    write_text(folder / "representation.md", page)


def _section(folder: Path, name: str, arms: list[str]) -> Section:
    """Read a task's jobs and judge them."""
    task = DECLARED[name]
    read = lambda arm: read_object(folder / name / f"{arm}.json", "errors", "parameters", "flops", "record")
    found = {arm: read(arm) for arm in arms_of(name, arms)}
    errors = {arm: job["errors"] for arm, job in found.items()}
    return Section(
        task,
        {arm: Measured(task, arm, job, found["clifford"]) for arm, job in found.items()},
        geometry.decide(errors, factor=task.factor, all_plus_fails=task.all_plus_fails, metric=task.metric),
        geometry.compare_expectations(task.expected, errors, factor=task.factor, metric=task.metric),
    )


def _summary(sections: list[Section]) -> str:
    kinds: dict[str, list[str]] = {}
    for section in sections:
        kinds.setdefault(section.verdict.verdict, []).append(section.task.name)
    return "; ".join(f"{kind} on {len(names)} ({', '.join(names)})" for kind, names in kinds.items())


def _error(task: Declared, value: float) -> str:
    if task.metric == "angle":
        return f"{value:.1f}°"
    return f"{100 * value:.1f} % wrong" if task.metric == "sign" else f"{value:.2g}"


def _range(ratios: Any) -> str:
    return f"{ratios[0]:.3g}" if len(ratios) == 1 else f"{min(ratios):.3g} to {max(ratios):.3g}"


def _pairs_cell(job: Mapping[str, Any], n: str) -> str:
    expected = f" ({job['expected'][n]:.2g})" if job["expected"] else ""
    return f"{np.median(job['by_samples'][n]):.2g}{expected}"


def _strips(sections: list[Section]):
    from matplotlib.figure import Figure

    columns = min(3, len(sections))
    lines = -(-len(sections) // columns)
    figure = Figure(figsize=(4.3 * columns, 3.1 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for ax in axes.flat[len(sections) :]:
        ax.set_visible(False)
    for ax, section in zip(axes.flat, sections, strict=False):
        task, jobs = section.task, section.jobs
        base = float(jobs["clifford"].medians[0])
        for y, (_arm, measured) in enumerate(jobs.items()):
            errors = np.asarray(measured.job["errors"], float)
            floor = table_medians([[0.0]], task.metric)[0]
            for t, row in enumerate(np.maximum(errors, floor)):
                shift = 0.0 if len(errors) == 1 else 0.56 * (t / (len(errors) - 1) - 0.5)
                ax.plot(row, [y + shift] * len(row), ls="", ms=3, alpha=0.55, color=COLOURS[0 if y == 0 else 1 if "shuffled" in _arm else 3], marker="o")  # fmt: skip
            middle = max(np.median(errors), floor)
            ax.plot([middle] * 2, [y - 0.36, y + 0.36], color="#000000", lw=1.6)
        ax.axvline(task.factor * base, color="#808080", lw=0.9, ls=(0, (2, 3)))
        if task.metric != "angle" and not task.null:
            ax.set_xscale("log")
        ax.set_yticks(range(len(jobs)), list(jobs))
        ax.tick_params(axis="y", labelsize=7.5)
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        label = {"nmse": "squared error / variance", "sign": "wrong signs", "angle": "median angle, degrees"}[
            task.metric
        ]
        ax.set_xlabel(label)
        ax.set_title(task.title, fontsize=9)
    return figure
