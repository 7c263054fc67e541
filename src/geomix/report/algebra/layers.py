"""The page of multivector layers: inserted into trained scalar models, and their three nonlinearities compared."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object, write_json, write_text
from geomix.report.algebra.page import machine_line, remark, seed_marks
from geomix.report.columns import Column, Table, thousands
from geomix.report.figures import draw
from geomix.report.pages import render
from geomix.settings.algebra_layers import ACTIVATIONS, ADOPTED, FACTOR
from geomix.statistics import t_interval
from geomix.statistics.geometry import BETTER, COMPONENT_RULE, WORSE, decide_component
from geomix.statistics.verdicts import A_BETTER, B_BETTER, WITHIN, verdict_of

MARGIN = 1.02
REFERENCES = ("continued", "widened")
INSERTED = ("clifford", "staged", "slow", "scratch")


@dataclass(frozen=True)
class Beside:
    """Ratio of final perplexities of two arms, paired by the trained model that both started from."""

    text: str
    verdict: str


def beside(a: Sequence[float], b: Sequence[float]) -> Beside:
    """The ratio a / b with the t-interval of the paired differences of log perplexity, and what it says of a."""
    logs = np.log(a) - np.log(b)
    if len(logs) < 2:
        return Beside(f"{math.exp(logs[0]):.3f}", "one model")
    t = t_interval(float(logs.mean()), float(logs.var(ddof=1) / len(logs)), len(logs) - 1)
    said = verdict_of(t, margin=math.log(MARGIN), seeds=(len(a), len(b))).removesuffix(WITHIN)
    words = {A_BETTER: BETTER, B_BETTER: WORSE}.get(said, said)
    return Beside(f"{math.exp(t.estimate):.3f} [{math.exp(t.low):.3f}, {math.exp(t.high):.3f}]", words)


def build_layers(folder: str | os.PathLike) -> None:
    """Write layers.md, layers.json and figures/layers of `folder` from adoption.json and nonlinearities.json in layers/."""
    folder = Path(folder)
    adoption, other = (
        read_object(folder / "layers" / f"{name}.json", part, "settings", "record")
        for name, part in (("adoption", "arms"), ("nonlinearities", "tasks"))
    )
    arms = {arm: adoption["arms"][arm] for arm in ADOPTED if arm in adoption["arms"]}
    final = {arm: [each["final"] for each in found] for arm, found in arms.items()}
    verdicts = {arm: _adopted(arm, final) for arm in INSERTED if arm in arms}
    best = {task: _best(found) for task, found in other["tasks"].items()}
    summary = "; ".join(
        [
            *(f"{arm}: {said}" for arm, said in verdicts.items()),
            *(f"nonlinearities on {task}: {said}" for task, said in best.items()),
        ]
    )
    page = render(
        "algebra_layers.md",
        summary=summary,
        adopted=_table(arms, final, verdicts),
        activations=_activations(other["tasks"]),
        settings=adoption["settings"],
        steps=other["settings"]["steps"],
        what={arm: ADOPTED[arm].what for arm in arms},
        kinds=ACTIVATIONS,
        factor=FACTOR,
        margin=MARGIN,
        rule=COMPONENT_RULE,
        machine=machine_line([adoption["record"], other["record"]]),
        remarks=remark(folder, "layers"),
    )
    write_text(folder / "layers.md", page)
    write_json(folder / "layers.json", {"summary": summary, "adoption": verdicts, "nonlinearities": best})
    draw("layers", folder / "figures", lambda: seed_marks(final, "test perplexity after the insertion"))


def _adopted(arm: str, final: Mapping[str, Sequence[float]]) -> str:
    """Phase 2's rule, beside the model that goes on, the widened one and (for `clifford`) random signs."""
    if lacking := [name for name in (*REFERENCES, "shuffled") if name not in final]:
        return f"not judged: {', '.join(lacking)} did not run"
    scalars = [beside(final[arm], final[name]).verdict for name in REFERENCES]
    if "one model" in scalars:
        return "not judged: one trained model"
    return decide_component(scalars, beside(final[arm], final["shuffled"]).verdict)


def _table(arms: Mapping[str, Any], final: Mapping[str, Sequence[float]], verdicts: Mapping[str, str]) -> Table:
    mean = lambda arm, name: float(np.mean([each[name] for each in arms[arm]]))

    def ratio(arm: str, other: str) -> str:
        if arm == other or other not in final:
            return "-"
        found = beside(final[arm], final[other])
        return f"{found.text} ({found.verdict})"

    columns = [
        Column("arm", lambda arm: arm),
        Column("parameters", lambda arm: int(mean(arm, "parameters")), show=thousands),
        Column("step", lambda arm: 1e3 * mean(arm, "step_seconds"), "step, CPU-ms", "{:.1f}".format),
        *(Column(n, lambda arm, n=n: mean(arm, n), n, "{:.2f}".format) for n in ("trained", "inserted", "final")),
        *(Column(n, lambda arm, n=n: ratio(arm, n), f"beside {n}") for n in (*REFERENCES, "shuffled")),
        Column("verdict", lambda arm: verdicts.get(arm, "")),
    ]
    return Table.of(columns, arms)


def _best(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Which nonlinearity has the least median error under the Clifford table, if by the factor beside every other."""
    medians = {name: float(np.median(tables["clifford"]["errors"])) for name, tables in found.items() if name != "none"}
    first, *rest = sorted(medians, key=medians.get)
    clear = [name for name in rest if medians[name] >= FACTOR * medians[first]]
    return f"{first} is best" if len(clear) == len(rest) else "no clear best"


def _activations(tasks: Mapping[str, Any]) -> Table:
    rows = [(task, name, tables) for task, found in tasks.items() for name, tables in found.items()]
    error = lambda row, table: float(np.median(row[2][table]["errors"]))
    return Table.of(
        [
            Column("task", lambda row: row[0]),
            Column("nonlinearity", lambda row: row[1]),
            Column("parameters", lambda row: row[2]["clifford"]["parameters"], show=thousands),
            Column("step", lambda row: 1e3 * row[2]["clifford"]["step_seconds"], "step, CPU-ms", "{:.1f}".format),
            Column("clifford", lambda row: error(row, "clifford"), "error, Clifford", "{:.3g}".format),
            Column("shuffled", lambda row: error(row, "shuffled"), "error, random signs", "{:.3g}".format),
        ],
        rows,
    )
