"""What has been claimed and how it is known: a table for the README, made from the records of the runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from geomix.files import read_object, read_objects
from geomix.report.text import interval_text, markdown_table
from geomix.statistics.targets import NO_GATE, seeds_named, spoken, trainings_measured
from geomix.training.results import Study


@dataclass(frozen=True)
class Claim:
    """A claim, its status (`measured`, `derived` or `not run`), the figure and the file that holds it."""

    claim: str
    status: str
    figure: str
    where: str


def claims_of_run(folder: str | os.PathLike, question: str) -> list[Claim]:
    """Claims of one run: its baseline's target, each planned contrast on the test sets, and the arms' sizes.

    `question` says what the run is for, in a few words. A run that has no study.json yet, or no comparisons, is
    `not run`; sizes are known from the study's description before anything is trained and are `derived`.
    """
    folder = Path(folder)
    if not (folder / "study.json").is_file():
        return [Claim(question, "not run", "-", f"`{folder}`")]
    study, found = Study.read(folder), []
    if study.gate is None:
        found.append(_ungated(folder, question))
    elif (folder / "parity.json").is_file():
        parity = read_object(folder / "parity.json", "sentence", "track", "seeds")
        found.append(
            Claim(
                f"{question}: the baseline reaches its target",
                "measured",
                f"{spoken(parity)}; {trainings_measured(parity)}",
                f"`{folder}/parity.json`",
            )
        )
    if (folder / "comparisons.json").is_file():
        for e in read_objects(folder / "comparisons.json", "a", "b", "set", "planned", "verdict"):
            if e["planned"] and e["set"] in study.test_sets:
                seeds = f"{e['seeds_a']} seed{'s' if e['seeds_a'] > 1 else ''}, {e['speakers']} speakers"
                verdict = {"a better": f"{e['a']} better", "b better": f"{e['b']} better"}.get(
                    e["verdict"], e["verdict"]
                )
                intervals = f"{interval_text(e['low'], e['high'])}, t {interval_text(e['t_low'], e['t_high'])}"
                figure = f"{e['difference']:+.2f} points {intervals}, {seeds}: {verdict}"
                claim = f"{question}: {e['a']} against {e['b']} on {e['set']} ({e['track']})"
                found.append(Claim(claim, "measured", figure, f"`{folder}/tables.md`"))
    else:
        found.append(Claim(question, "not run", "-", f"`{folder}`"))
    sizes = [f"{arm} {study.parameters(arm):,}" for arm in study.arms if study.parameters(arm) is not None]
    if sizes:
        found.append(Claim(f"{question}: parameters", "derived", ", ".join(sizes), f"`{folder}/study.json`"))
    return found


def claims_of_language(folder: str | os.PathLike, question: str) -> list[Claim]:
    """Claims of a language study, results/<run>/language: its baseline's target and each planned contrast on the test text."""
    folder = Path(folder)
    if not (folder / "comparisons.json").is_file():
        return [Claim(question, "not run", "-", f"`{folder}`")]
    if (folder / "study.json").is_file() and read_object(folder / "study.json", "gate")["gate"] is None:
        found = [_ungated(folder, question)]
    else:
        parity = read_object(folder / "parity.json", "sentence", "seeds")
        figure = f"{spoken(parity)}; {seeds_named(parity['seeds'])}"
        found = [Claim(f"{question}: the baseline", "measured", figure, f"`{folder}/parity.json`")]
    for e in read_objects(folder / "comparisons.json", "a", "b", "set", "planned", "verdict"):
        if e["planned"] and e["set"] == "test":
            interval = f" [{e['low']:.3f}, {e['high']:.3f}]" if "low" in e else ""
            figure = (
                f"perplexity ratio {e['ratio']:.3f}{interval}, {e['seeds_a']} + {e['seeds_b']} seeds: {e['verdict']}"
            )
            found.append(Claim(f"{question}: {e['a']} over {e['b']}", "measured", figure, f"`{folder}/tables.md`"))
    return found


def _ungated(folder: Path, question: str) -> Claim:
    """What is said of the baseline of a study without a gate."""
    return Claim(f"{question}: the baseline reaches its target", "not run", NO_GATE, f"`{folder}/study.json`")


PHASES = {
    "representation": "phase 1, does a Clifford table beat shuffled signs?",
    "components": "phase 2, one component of a Transformer at a time",
    "architectures": "phase 3, feed-forward maps at equal parameters",
    "speech": "phase 3, the same maps in a small Conformer on the demo's corpus",
    "interpretability": "phase 4, do the grades mean something?",
}


def claims_of_algebra(folder: str | os.PathLike, question: str) -> list[Claim]:
    """Claims of the algebra study in `folder`: each phase's sentence, or that it has not been run."""
    folder, found = Path(folder), []
    for phase, asked in PHASES.items():
        path = folder / f"{phase}.json"
        status, figure = ("measured", read_object(path, "summary")["summary"]) if path.is_file() else ("not run", "-")
        found.append(Claim(f"{question}, {asked}", status, figure, f"`{folder}/{phase}.md`"))
    return found


def claims_table(claims: Iterable[Claim]) -> str:
    """Markdown table of claims."""
    lines = [[c.claim, c.status, c.figure, c.where] for c in claims]
    return "\n".join(markdown_table(["claim", "status", "figure", "where"], lines))
