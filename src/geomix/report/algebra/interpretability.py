"""Phase 4's page: five questions to trained networks, each beside its nulls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object, write_json, write_text
from geomix.report.algebra.page import machine_line, remark
from geomix.report.columns import Column, Table
from geomix.report.figures import COLOURS, MARKERS, draw
from geomix.report.pages import render

TESTS = ("direction", "half_turn", "plane", "composition", "intervention")
# columns of numbers: what the networks are called in the table
NETWORKS = {"trained": "Clifford, trained", "untrained": "untrained", "shuffled": "shuffled", "dense": "dense"}


def build_interpretability(folder: str | os.PathLike) -> None:
    """Write interpretability.md and figures/interpretability of `folder` from interpretability/tests.json."""
    folder = Path(folder)
    found = read_object(folder / "interpretability" / "tests.json", "tests", "record")
    tests = {name: found["tests"][name] for name in TESTS}
    kinds = list(dict.fromkeys(t["verdict"] for t in tests.values()))
    summary = "; ".join(f"{kind}: {', '.join(n for n, t in tests.items() if t['verdict'] == kind)}" for kind in kinds)
    pairs = tests["plane"]["pairs"]
    page = render(
        "algebra_interpretability.md",
        summary=summary,
        machine=machine_line([found["record"]]),
        models=tests["composition"]["values"],
        tests=lambda questions: _table(tests, questions),
        pairs=Table.of(
            [
                Column("network", lambda kind: kind),
                *(Column(n, lambda kind, n=n: pairs[kind][n], show="{:.2g}".format) for n in pairs["trained"]),
            ],
            pairs,
        ),
        route=_span(tests["intervention"]["route"]["trained"]),
        remarks=remark(folder, "interpretability"),
    )
    write_text(folder / "interpretability.md", page)
    verdicts = {name: test["verdict"] for name, test in tests.items()}
    write_json(folder / "interpretability.json", {"summary": summary, "verdicts": verdicts})
    draw("interpretability", folder / "figures", lambda: _tests_figure(tests))


def _table(tests: dict[str, Any], questions: dict[str, str]) -> Table:
    """The tests, each under its question, with the median and range over models of each network."""
    values = [
        Column(kind, lambda n, k=kind: _span(v[k]) if k in (v := tests[n]["values"]) else "-", title)
        for kind, title in NETWORKS.items()
    ]
    columns = [
        Column("question", lambda n: f"`{n}`: {questions[n]}"),
        Column("what", lambda n: tests[n]["what"], "what is measured"),
        Column("unit", lambda n: tests[n]["unit"]),
        *values,
        Column("verdict", lambda n: tests[n]["verdict"]),
    ]
    return Table.of(columns, tests)


def _span(values: Any) -> str:
    return f"{np.median(values):.2g} ({np.min(values):.2g} to {np.max(values):.2g})"


def _tests_figure(tests: dict[str, Any]):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.25))
    kinds = ("trained", "untrained", "shuffled", "dense")
    looks = {kind: {"color": COLOURS[i], "marker": MARKERS[i]} for i, kind in enumerate(kinds)}
    for ax, (name, test) in zip(top.subplots(1, len(tests)), tests.items(), strict=True):
        for x, kind in enumerate(k for k in kinds if k in test["values"]):
            values = np.maximum(test["values"][kind], 1e-3)
            jitter = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else [0]
            ax.plot(x + np.asarray(jitter), values, ls="", ms=3.5, alpha=0.6, **looks[kind])
        ax.set_yscale("log")
        ax.set_xticks(range(len(test["values"])), [k for k in kinds if k in test["values"]], rotation=30, fontsize=7.5)
        ax.set_ylabel(test["unit"], fontsize=8)
        ax.set_title(name, fontsize=9)
        ax.grid(axis="x", visible=False)
    left, right = bottom.subplots(1, 2)
    for ax, name in ((left, "composition"), (right, "intervention")):
        for kind in (k for k in kinds if k in tests[name]["curve"]):
            points = tests[name]["curve"][kind]
            x = sorted(points, key=float)
            x = [g for g in x if not (name == "intervention" and float(g) == 1)]
            low, middle, high = np.quantile([points[g] for g in x], (0, 0.5, 1), axis=1)
            place = [float(g) for g in x]
            ax.plot(place, middle, lw=1.5, ms=4.5, label=kind, **looks[kind])
            ax.fill_between(place, np.maximum(low, 1e-3), high, color=looks[kind]["color"], alpha=0.12, lw=0)
        ax.set_yscale("log")
    left.set_xlabel("rotors composed")
    left.set_ylabel("median angle to the truth, degrees")
    left.set_xscale("log")
    left.set_xticks([3, 5, 9, 17, 33], ["3", "5", "9", "17", "33"])
    left.minorticks_off()
    right.set_xlabel("gain on the first layer's bivectors")
    right.set_ylabel("error of the prediction / change")
    right.axhline(1, color="#808080", lw=0.9, ls=(0, (2, 3)))
    left.legend(frameon=False, fontsize=8)
    return figure
