"""Phase 4's page: five questions to trained networks, each beside its nulls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object, write_json, write_text
from geomix.report.algebra.page import machine_line, remarks_section
from geomix.report.figures import COLOURS, MARKERS, draw
from geomix.report.text import markdown_table

QUESTIONS = {
    "direction": "Do vector components encode a direction?",
    "half_turn": "Do hidden vectors hold an intermediate direction of the problem?",
    "plane": "Do bivectors hold planes of the problem?",
    "composition": "Do the rotors compose?",
    "intervention": "Does an intervention on one grade do what geometry predicts?",
}


def build_interpretability(folder: str | os.PathLike) -> None:
    """Write interpretability.md and figures/interpretability of `folder` from interpretability/tests.json."""
    from geomix.studies.algebra import interpretability

    folder = Path(folder)
    found = read_object(folder / "interpretability" / "tests.json", "tests", "record")
    tests = {name: found["tests"][name] for name in QUESTIONS}
    kinds = list(dict.fromkeys(t["verdict"] for t in tests.values()))
    sentence = "; ".join(f"{kind}: {', '.join(n for n, t in tests.items() if t['verdict'] == kind)}" for kind in kinds)
    span = lambda v: f"{np.median(v):.2g} ({np.min(v):.2g} to {np.max(v):.2g})"
    rows = [
        [f"`{name}`: {QUESTIONS[name]}", test["what"], test["unit"], *(span(test["values"][k]) if k in test["values"] else "-" for k in ("trained", "untrained", "shuffled", "dense")), test["verdict"]]
        for name, test in tests.items()
    ]  # fmt: skip
    counts = ", ".join(f"{len(values)} {kind}" for kind, values in tests["composition"]["values"].items())
    pairs = tests["plane"]["pairs"]
    names = list(pairs["trained"])
    parts = [
        "# Phase 4: do the grades mean something?",
        f"**In one sentence:** {sentence}.",
        "Nothing is assumed interpretable: each question is a number that is also measured on the same network untrained, and trained under random signs. "
        f"Smaller is better; median (range) over models, of which there are {counts}. {machine_line([found['record']])}",
        "\n".join(
            markdown_table(
                [
                    "question",
                    "what is measured",
                    "unit",
                    "Clifford, trained",
                    "untrained",
                    "shuffled",
                    "dense",
                    "verdict",
                ],
                rows,
            )
        ),
        "![The five tests](figures/interpretability.png)",
        "*Trained Clifford networks, the same untrained, and trained under random signs; a mark a model (table and seed). Below: composed rotations by length, and the effect of a gain on the first layer's bivectors. Values below 0.001 are drawn there.*",
        "Bivectors of products of two rotors that the first layer's bivectors do not explain (median share); the composition passes through R2R1 or R3R2:",
        "\n".join(
            markdown_table(["network", *names], [[kind, *(f"{pairs[kind][n]:.2g}" for n in names)] for kind in pairs])
        ),
        f"Share of the route R3 (R2 R1) in the second layer, fitted with the intervention: trained {span(tests['intervention']['route']['trained'])}.",
        "## Fixed before the run",
        "The tests, their nulls and the rule:",
        "\n".join(f"> {line}".rstrip() for line in interpretability.__doc__.split("\n\n", 1)[1].strip().splitlines()),
        remarks_section(folder, "interpretability"),
    ]
    write_text(folder / "interpretability.md", "\n\n".join(p for p in parts if p) + "\n")
    verdicts = {name: test["verdict"] for name, test in tests.items()}
    write_json(folder / "interpretability.json", {"summary": sentence, "verdicts": verdicts})
    draw("interpretability", folder / "figures", lambda: _tests_figure(tests))


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
