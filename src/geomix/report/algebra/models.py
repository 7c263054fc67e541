"""Pages of phases 2 and 3: what their studies found, beside what a step of each arm costs, with the protocol of the phase."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object, read_objects, write_json, write_text
from geomix.report.algebra.page import remark, seed_marks
from geomix.report.columns import Column, Table, thousands
from geomix.report.figures import draw
from geomix.report.pages import render
from geomix.settings.algebra_components import COMPONENTS, DROPPED, Component
from geomix.settings.replacements import in_words, split_replaced
from geomix.statistics.geometry import COMPONENT_RULE, decide_component
from geomix.statistics.verdicts import TWO_MODELS, WITHIN
from geomix.training.record import RunRecord
from geomix.training.results import Study

CONTROLS = (("clifford", "shuffled"), ("clifford_two_sided", "shuffled_two_sided"))
"""An arm of the algebra, and the same under random signs."""
FLOPS_BASELINE = "scalar_flops"
"""The dense arm that holds clifford's FLOPs."""
SPEECH_BASELINE = "wide_scalar"
RATES = (("qkv_slow", "qkv"), ("qkv_fast", "qkv"))
"""Arms whose grades above 0 have another learning rate, and the arm with one rate."""


@dataclass(frozen=True)
class Phase:
    """The study of a phase, its comparisons and costs."""

    study: Study
    baseline: str

    @classmethod
    def read(cls, folder: Path, phase: str) -> Phase:
        """The phase in `<folder>/<phase>/`."""
        study = Study.read(folder / phase)
        return cls(study, study.settings["study"].get("baseline") or SPEECH_BASELINE)

    @cached_property
    def comparisons(self) -> list[dict[str, Any]]:
        """Entries of comparisons.json on the test sets."""
        found = read_objects(self.study.folder / "comparisons.json")
        return [entry for entry in found if entry["set"] in self.study.test_sets]

    @cached_property
    def costs(self) -> Mapping[str, Mapping[str, float]]:
        """Arm -> what a step costs."""
        return read_object(self.study.folder / "costs.json", "arms", "record")["arms"]

    @cached_property
    def rows(self) -> dict[str, Row]:
        """A row for each arm."""
        return {arm: Row(self, arm, self.study.of(self.study.tracks[0], arm)) for arm in self.study.arms}

    def contrast(self, a: str, b: str, name: str | None = None) -> Contrast | None:
        """What the comparison on a test set (the first one) says of a beside b; None where it has no such pair."""
        for entry in self.comparisons:
            if {entry["a"], entry["b"]} == {a, b} and entry["set"] == (name or self.study.test_sets[0]):
                return Contrast(entry, turned=entry["a"] == b)
        return None

    def said(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """What the phase's JSON file says of each pair."""
        found = [(a, b, self.contrast(a, b)) for a, b in pairs if {a, b} <= set(self.rows)]
        return [{"arm": a, "baseline": b, **c.values, "verdict": c.verdict} for a, b, c in found if c]

    @property
    def machine(self) -> str:
        """Where and when the trainings ran and what they took."""
        records = [trained.record for trained in self.study.trainings]
        origins = [record.origin for record in records]
        commits = sorted({(o.commit or "unknown")[:10] + (" (dirty)" if o.dirty else "") for o in origins})
        minutes = sum(record.course.wall_seconds for record in records) / 60
        where = ", ".join(sorted({o.cpu if o.device == "cpu" else o.device for o in origins}))
        return (
            f"{len(records)} trainings, {minutes:.1f} minutes in all on {where}; torch {origins[0].packages.get('torch', '-')}; "
            f"commit {', '.join(commits)}; finished {max(o.finished for o in origins)[:16]} UTC."
        )


@dataclass(frozen=True)
class Contrast:
    """An entry of comparisons.json read as a beside b, whichever of the two stands first there."""

    entry: Mapping[str, Any]
    turned: bool

    @property
    def verdict(self) -> str:
        """`better` or `worse`, of a, or the verdict itself where it names neither."""
        said = self.entry["verdict"].removesuffix(WITHIN)
        if not said.endswith(" better"):
            return said
        first = said.removesuffix(" better") in ("a", self.entry["a"])
        return "better" if first != self.turned else "worse"

    @property
    def values(self) -> dict[str, float]:
        """`ratio` of perplexities or `difference` of word error rates, and the ends of its interval where it has one."""
        name = "ratio" if "ratio" in self.entry else "difference"
        low, value, high = (self.entry.get(key) for key in ("low", name, "high"))
        if self.turned:
            turn = (lambda v: 1 / v) if name == "ratio" else (lambda v: 0.0 - v)
            low, value, high = (None if v is None else turn(v) for v in (high, value, low))
        return {name: value} | ({} if low is None else {"low": low, "high": high})

    @property
    def text(self) -> str:
        """`1.014 [0.987, 1.042]`, or `-1.2 [-2.0, -0.4] points`."""
        values = self.values
        form = "{:.3f}" if "ratio" in values else "{:+.1f}"
        shown = form.format(values.get("ratio", values.get("difference")))
        if "low" in values:
            shown += f" [{form.format(values['low'])}, {form.format(values['high'])}]"
        return shown if "ratio" in values else f"{shown} points"


@dataclass(frozen=True)
class Row:
    """An arm of a phase."""

    phase: Phase
    arm: str
    trainings: Sequence[Any]

    @property
    def records(self) -> list[RunRecord]:
        return [trained.record for trained in self.trainings]

    @property
    def size(self) -> Mapping[str, Any]:
        """What study.json says of its size."""
        return self.phase.study.settings["sizes"][self.arm]

    def beside(self, name: str, baseline: str) -> float:
        """One of its sizes over that of an arm."""
        return self.size[name] / self.phase.rows[baseline].size[name]

    def perplexities(self, average: str = "batch_mean") -> list[float]:
        """On the test text, a seed each."""
        return [trained.perplexity["test"][average] for trained in self.trainings]

    def rates(self, name: str) -> list[float]:
        """Word error rate (%) on a set, a seed each."""
        return [read_object(t.folder / "score" / f"{name}.json")["words"]["rate"] for t in self.trainings]

    def against(self, baseline: str) -> tuple[str, str]:
        """Ratio and verdict beside an arm."""
        if self.arm == baseline:
            return "1", "baseline"
        if self.perplexities() == self.phase.rows[baseline].perplexities():
            return "1 exactly", "identical, seed by seed"
        found = self.phase.contrast(self.arm, baseline)
        return (found.text, found.verdict) if found else ("", "")


def _mean(values: Sequence[float], decimals: int = 2) -> str:
    spread = f" ± {np.std(values, ddof=1):.{decimals}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{decimals}f}{spread}"


def _step(row: Row, baseline: str) -> str:
    """Measured step time, the third budget, beside the baseline's."""
    ours, its = (row.phase.costs[arm]["step_seconds"] for arm in (row.arm, baseline))
    return f"{1e3 * ours:.1f} ({ours / its:.2f})"


def _sized(flops: str, unit: float, decimals: int, title: str, baseline: str) -> list[Column]:
    """Columns of sizes and costs; `flops` is their name in study.json, `baseline` the arm beside which they stand."""
    shown = lambda row: f"{row.size[flops] / unit:.{decimals}f} ({row.beside(flops, baseline):.2f})"
    peak = lambda row: max(record.course.peak_memory_bytes for record in row.records)
    return [
        Column("arm", lambda row: row.arm),
        Column(
            "parameters",
            lambda r: f"{r.size['parameters']:,} ({r.beside('parameters', baseline):.3f})",
            "parameters (× baseline)",
        ),
        Column("flops", shown, title),
        Column("step", lambda row: _step(row, baseline), "step, CPU-ms (×)"),
        Column("kept", lambda row: row.phase.costs[row.arm]["activation_bytes"] / 1e6, "kept, MB", "{:.1f}".format),
        Column("peak", lambda row: peak(row) / 1e6, "peak, MB", "{:.0f}".format),
    ]


def _language_table(phase: Phase, arms: Sequence[str], baseline: str) -> Table:
    columns = [
        *_sized("flops_per_token", 1e6, 2, "MFLOP a token (×)", baseline),
        Column("test", lambda row: _mean(row.perplexities()), "test perplexity"),
        Column("token", lambda row: _mean(row.perplexities("token")), "by tokens"),
        Column("ratio", lambda row: row.against(baseline)[0], "ratio [95 %]"),
        Column("verdict", lambda row: row.against(baseline)[1]),
    ]
    return Table.of(columns, [phase.rows[arm] for arm in arms])


def _finish(phase: Phase, folder: Path, name: str, summary: str, said: Mapping[str, Any], **values: Any) -> None:
    """Write the page, its JSON file and its figure."""
    machine, settings, notes = phase.machine, phase.study.settings, remark(folder, name)
    page = render(f"algebra_{name}.md", summary=summary, settings=settings, machine=machine, remarks=notes, **values)
    write_text(folder / f"{name}.md", page)
    write_json(folder / f"{name}.json", {"summary": summary, **said})


def _draw(phase: Phase, folder: Path, name: str, values: Callable[[Row], list[float]], label: str) -> None:
    draw(name, folder / "figures", lambda: seed_marks({arm: values(row) for arm, row in phase.rows.items()}, label))


@dataclass(frozen=True)
class Judged:
    """A component of phase 2 beside its controls, and the verdict of the rule."""

    phase: Phase
    component: Component

    def _found(self, other: str | None) -> Contrast | None:
        return self.phase.contrast(self.component.arm, other) if other in self.phase.rows else None

    def said(self, *others: str | None) -> str:
        """Ratio and verdict beside each of some arms that ran."""
        shown = [(other, self._found(other)) for other in others if other]
        return "; ".join(f"{other} {found.text} ({found.verdict})" for other, found in shown if found) or "-"

    @property
    def verdict(self) -> str:
        """By `geometry.decide_component`, or what keeps the rule from being asked."""
        asked = self.component
        wanted = [name for name in (*asked.scalars, asked.shuffled, asked.gauge) if name]
        if lacking := [name for name in wanted if self._found(name) is None]:
            return f"not judged: {', '.join(lacking)} did not run"
        verdict = lambda name: self._found(name).verdict if name else None
        if TWO_MODELS in map(verdict, wanted):
            return "not judged: one seed a side"
        return decide_component([verdict(s) for s in asked.scalars], verdict(asked.shuffled), verdict(asked.gauge))


JUDGED = (
    Column("component", lambda j: j.component.arm),
    Column("budget", lambda j: j.component.budget, "budget held"),
    Column("shuffled", lambda j: j.said(j.component.shuffled), "beside random signs"),
    Column("scalars", lambda j: j.said(*j.component.scalars), "beside scalar forms"),
    Column("gauge", lambda j: j.said(j.component.gauge), "beside other names"),
    Column("verdict", lambda j: j.verdict),
)
DECLARED = (
    Column("component", lambda c: c.arm),
    Column("what", lambda c: c.what, "what it replaces"),
    Column("expresses", lambda c: c.expresses, "what it can express that a scalar form of its budget cannot"),
    Column("score", lambda c: "{} / {}".format(*c.score) if c.score else "-", "rank of a score, ours / theirs"),
    Column("values", lambda c: "{} / {}".format(*c.values) if c.values else "-", "rank of values"),
)


def build_components(folder: str | os.PathLike) -> None:
    """Write components.md, components.json and figures/components of `folder` from the study in components/."""
    folder = Path(folder)
    phase = Phase.read(folder, "components")
    arms, base = phase.study.settings["arms"], phase.baseline
    judged = [Judged(phase, component) for arm, component in COMPONENTS.items() if arm in phase.rows]
    kinds = list(dict.fromkeys(j.verdict for j in judged))
    clauses = [f"{kind}: {', '.join(j.component.arm for j in judged if j.verdict == kind)}" for kind in kinds]
    planned = [(a, b) for a, b in phase.study.planned if {a, b} <= set(phase.rows)]
    _finish(
        phase, folder, "components", "; ".join(clauses) or "no component ran: nothing is judged",
        {"verdicts": {j.component.arm: j.verdict for j in judged}, "comparisons": phase.said(planned)},
        data=phase.rows[base].records[0].subject.data,
        table=_language_table(phase, list(phase.rows), base),
        judged=Table.of(JUDGED, judged),
        declared=Table.of(DECLARED, [j.component for j in judged]),
        dropped=DROPPED,
        rates=[(a, b, c) for a, b in RATES if {a, b} <= set(phase.rows) and (c := phase.contrast(a, b))],
        rule=COMPONENT_RULE,
        arms={arm: _in_words(arms[arm]) for arm in phase.rows},
    )  # fmt: skip
    _draw(phase, folder, "components", Row.perplexities, "test perplexity")


def _in_words(arm: Mapping[str, Any]) -> str:
    """What an arm replaces, by its keys."""
    arm = dict(arm)
    replaced = in_words(split_replaced(arm))
    return ", ".join([f"mixer {arm['mixer']}", *replaced])


def build_architectures(folder: str | os.PathLike) -> None:
    """Write architectures.md, architectures.json and figures/architectures of `folder` from the study in architectures/."""
    folder = Path(folder)
    phase = Phase.read(folder, "architectures")
    base, rows = phase.baseline, phase.rows
    sentences = [
        f"{arm} has {_beside(phase, arm, shuffled)} times the perplexity of its shuffled table and {_beside(phase, arm, base)} times "
        "that of the dense model of the same size"
        for arm, shuffled in CONTROLS
        if {arm, shuffled} <= set(rows)
    ]
    summary = "; ".join(sentences) or "no Clifford arm beside its shuffled table: nothing is compared"
    by_parameters = [arm for arm in rows if arm != FLOPS_BASELINE]
    by_flops = [arm for arm in (FLOPS_BASELINE, "clifford") if arm in rows]
    _finish(
        phase, folder, "architectures", summary,
        {
            "parameters held": phase.said([(arm, base) for arm in by_parameters if arm != base]),
            "flops held": phase.said([("clifford", FLOPS_BASELINE)]),
            "controls": phase.said(CONTROLS),
        },
        data=rows[base].records[0].subject.data,
        by_parameters=_language_table(phase, by_parameters, base),
        by_flops=_language_table(phase, by_flops, FLOPS_BASELINE) if len(by_flops) == 2 else None,
        maps=Table.of(MAPS, [row for row in rows.values() if "feed_forward" in row.size]),
        speech=(folder / "speech").is_dir(),
    )  # fmt: skip
    _draw(phase, folder, "architectures", Row.perplexities, "test perplexity")


MAPS = (
    Column("arm", lambda row: row.arm),
    Column("what", lambda row: _in_words(row.phase.study.settings["arms"][row.arm]).partition(", feed_forward ")[2]),
    Column("inner", lambda row: row.size["feed_forward"]["inner"], "inner width"),
    Column("parameters", lambda row: row.size["feed_forward"]["parameters"], "parameters of a block", thousands),
    Column("macs", lambda row: row.size["feed_forward"]["macs"], "multiply-adds", thousands),
    Column("tying", lambda row: row.size["feed_forward"]["tying"], "sharing"),
    Column("span", lambda row: "{span}/{of}".format(**b) if (b := row.size["feed_forward"])["span"] else ""),
)


def _beside(phase: Phase, arm: str, other: str) -> str:
    found = phase.contrast(arm, other)
    return f"{found.text} ({found.verdict})" if found else "-"


def build_speech(folder: str | os.PathLike) -> None:
    """Write speech.md, speech.json and figures/speech of `folder` from the study in speech/."""
    folder = Path(folder)
    phase = Phase.read(folder, "speech")
    sets, rows = phase.study.sets, phase.rows
    rate = lambda row: f"{_mean(row.rates(sets[0]), 1)} %"
    summary = f"word error rates on {sets[0]}: " + ", ".join(f"{arm} {rate(row)}" for arm, row in rows.items())
    for arm, shuffled in CONTROLS:
        if {arm, shuffled} <= set(rows):
            summary += (
                f"; {arm} beside its shuffled table {_beside(phase, arm, shuffled)}, beside the dense model of the same "
                f"size {_beside(phase, arm, phase.baseline)}"
            )
    columns = [
        *_sized("flops_per_audio_second", 1e6, 0, "MFLOP an audio-second (×)", phase.baseline),
        *(Column(s, lambda row, s=s: _mean(row.rates(s), 1), f"WER {s}, %") for s in sets),
    ]
    first = next(iter(rows.values())).records[0].subject.settings["training"]
    _finish(
        phase, folder, "speech", summary, {"comparisons": phase.said(phase.study.planned)},
        epochs=first["epochs"], table=Table.of(columns, rows.values()),
    )  # fmt: skip
    _draw(phase, folder, "speech", lambda row: row.rates(sets[0]), f"WER on {sets[0]}, %")


PAGES = {"components": build_components, "architectures": build_architectures, "speech": build_speech}
"""Phase -> what writes its page."""
