"""What has been claimed and how it is known: a table for the README, made from the records of the runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix.files import read_object, read_objects
from geomix.report.columns import Column, Table
from geomix.report.language import PUBLISHED
from geomix.report.names import PHASES
from geomix.report.text import interval_text, named_verdict
from geomix.statistics.targets import NO_GATE, seeds_named, spoken, trainings_measured
from geomix.training.results import WER, Study


@dataclass(frozen=True)
class Claim:
    """A claim, its status (`measured`, `derived` or `not run`), the figure and the file that holds it."""

    claim: str
    status: str
    figure: str
    where: str
    said: str = "-"


SAID_OF_BASELINE = "validation perplexity 247.9 (247.1, 250.5, 246.2)"


def claims_of_study(folder: str | os.PathLike, question: str) -> list[Claim]:
    """Claims of one study: its baseline's target, each planned contrast on the test sets, and the arms' sizes.

    `question` says what the run is for, in a few words. A run that has no study.json yet, or no comparisons, is
    `not run`; sizes are known from the study's description before anything is trained and are `derived`.
    """
    folder = Path(folder)
    if not (folder / "study.json").is_file():
        return [Claim(question, "not run", "-", f"`{folder}`")]
    study = Study.read(folder)
    found = [*_baseline(study, question)]
    if (folder / "comparisons.json").is_file():
        for e in read_objects(folder / "comparisons.json", "a", "b", "set", "planned", "verdict"):
            if e["planned"] and e["set"] in study.test_sets:
                contrast, figure = (_of_rates if study.metric == WER else _of_perplexities)(e)
                said = PUBLISHED.get((e["a"], e["b"]), "-")
                found.append(Claim(f"{question}: {contrast}", "measured", figure, f"`{folder}/tables.md`", said))
    else:
        found.append(Claim(question, "not run", "-", f"`{folder}`"))
    sizes = [f"{arm} {study.parameters(arm):,}" for arm in study.arms if study.parameters(arm) is not None]
    if sizes:
        found.append(Claim(f"{question}: parameters", "derived", ", ".join(sizes), f"`{folder}/study.json`"))
    return found


def _baseline(study: Study, question: str) -> Iterator[Claim]:
    """What the gate measured, or that the study has none."""
    target, path = f"{question}: the baseline reaches its target", study.folder / "parity.json"
    if study.gate is None:
        yield Claim(target, "not run", NO_GATE, f"`{study.folder}/study.json`")
    elif path.is_file():
        parity = read_object(path, "sentence", "seeds")
        # a range of perplexities may have no published end to reach
        speech = study.metric == WER
        trainings = trainings_measured(parity) if speech else seeds_named(parity["seeds"])
        figure = f"{spoken(parity)}; {trainings}"
        said = "-" if speech else SAID_OF_BASELINE
        yield Claim(target if speech else f"{question}: the baseline", "measured", figure, f"`{path}`", said)


def _of_rates(e: Mapping[str, Any]) -> tuple[str, str]:
    """A contrast of word error rates and its figure."""
    seeds = f"{e['seeds_a']} seed{'s' if e['seeds_a'] > 1 else ''}, {e['speakers']} speakers"
    intervals = f"{interval_text(e['low'], e['high'])}, t {interval_text(e['t_low'], e['t_high'])}"
    verdict = named_verdict(e["verdict"], e["a"], e["b"])
    figure = f"{e['difference']:+.2f} points {intervals}, {seeds}: {verdict}"
    return f"{e['a']} against {e['b']} on {e['set']} ({e['track']})", figure


def _of_perplexities(e: Mapping[str, Any]) -> tuple[str, str]:
    """A contrast of perplexities and its figure."""
    interval = f" [{e['low']:.3f}, {e['high']:.3f}]" if "low" in e else ""
    figure = f"perplexity ratio {e['ratio']:.3f}{interval}, {e['seeds_a']} + {e['seeds_b']} seeds: {e['verdict']}"
    return f"{e['a']} over {e['b']}", figure


def claims_of_algebra(folder: str | os.PathLike, question: str) -> list[Claim]:
    """Claims of the algebra study in `folder`: each phase's sentence, or that it has not been run."""
    folder, found = Path(folder), []
    for phase, asked in PHASES.items():
        path = folder / f"{phase}.json"
        status, figure = ("measured", read_object(path, "summary")["summary"]) if path.is_file() else ("not run", "-")
        found.append(Claim(f"{question}, {asked}", status, figure, f"`{folder}/{phase}.md`"))
    return found


COLUMNS = (
    Column("claim", lambda c: c.claim),
    Column("status", lambda c: c.status),
    Column("figure", lambda c: c.figure),
    Column("[Tested2026] said", lambda c: c.said),
    Column("where", lambda c: c.where),
)


def claims_table(claims: Iterable[Claim]) -> str:
    """Markdown table of claims."""
    return Table.of(COLUMNS, claims).markdown()
