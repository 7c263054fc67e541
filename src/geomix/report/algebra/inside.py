"""Phase 4's page on the models of phases 2 and 3: learned rotor planes, and the energy of each grade by layer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object, write_json, write_text
from geomix.report.algebra.page import machine_line, remark
from geomix.report.columns import Column, Table
from geomix.report.figures import COLOURS, draw
from geomix.report.pages import render
from geomix.statistics.geometry import PLANES_RULE, judge_grades, judge_planes

SHUFFLED = "_shuffled"


def _partner(arm: str) -> str:
    """The arm under random signs: `qkv_shuffled` of `qkv`, `shuffled` of `clifford`."""
    phase, _, name = arm.partition("/")
    return f"{phase}/shuffled" if name == "clifford" else f"{arm}{SHUFFLED}"


def build_inside(folder: str | os.PathLike) -> None:
    """Write inside.md, inside.json and figures/inside of `folder` from inside/models.json."""
    folder = Path(folder)
    found = read_object(folder / "inside" / "models.json", "planes", "grades", "record")
    planes, grades = found["planes"], found["grades"]
    verdicts = {
        "planes": {
            arm: judge_planes([each["costs"] for each in entries], [each["gauge"] for each in entries])
            for arm, entries in planes.items()
        },
        "grades": {
            arm: judge_grades(*(_departures(entries, k) for k in ("trained", "untrained")), _departures(grades[other]))
            for arm, entries in grades.items()
            if (other := _partner(arm)) in grades
        },
    }
    summary = "; ".join(f"{what} of {arm}: {said}" for what, each in verdicts.items() for arm, said in each.items())
    page = render(
        "algebra_inside.md",
        summary=summary or "no model with rotors or algebra-valued maps was trained",
        planes=_planes(planes, verdicts["planes"]) if planes else None,
        grades=_grades(grades, verdicts["grades"]) if grades else None,
        layers=_layers(grades) if grades else None,
        rule=PLANES_RULE,
        machine=machine_line([found["record"]]),
        remarks=remark(folder, "inside"),
    )
    write_text(folder / "inside.md", page)
    write_json(folder / "inside.json", {"summary": summary, **verdicts})
    draw("inside", folder / "figures", lambda: _figure(grades))


def _departures(entries: Sequence[Mapping[str, Any]], network: str = "trained") -> list[float]:
    return [each[network]["departure"] for each in entries]


def _span(values: Sequence[float]) -> str:
    return f"{np.median(values):.2g} ({np.min(values):.2g} to {np.max(values):.2g})"


def _planes(planes: Mapping[str, Any], verdicts: Mapping[str, str]) -> Table:
    cost = lambda arm, change: _span([each["costs"][change] for each in planes[arm]])
    return Table.of(
        [
            Column("model", lambda arm: arm),
            Column(
                "off", lambda arm: _span([s for each in planes[arm] for s in each["off_plane"]]), "off the first plane"
            ),
            *(
                Column(change, lambda arm, c=change: cost(arm, c), f"{title}, nats")
                for change, title in (
                    ("start", "first planes"),
                    ("random", "random planes"),
                    ("rates", "rates dealt anew"),
                )
            ),
            Column("gauge", lambda arm: _span([each["gauge"] for each in planes[arm]]), "other names, nats"),
            Column("verdict", lambda arm: verdicts[arm]),
        ],
        planes,
    )


def _grades(grades: Mapping[str, Any], verdicts: Mapping[str, str]) -> Table:
    return Table.of(
        [
            Column("model", lambda arm: arm),
            *(
                Column(k, lambda arm, k=k: _span(_departures(grades[arm], k)), f"departure, {k}")
                for k in ("trained", "untrained")
            ),
            Column("verdict", lambda arm: verdicts.get(arm, "")),
        ],
        grades,
    )


def _mean_shares(entries: Sequence[Mapping[str, Any]], network: str, name: str) -> np.ndarray:
    return np.mean([each[network]["shares"][name] for each in entries], axis=0)


def _layers(grades: Mapping[str, Any]) -> Table:
    rows = [(arm, name) for arm, entries in grades.items() for name in entries[0]["trained"]["shares"]]
    shown = lambda row, k: " ".join(f"{v:.2f}" for v in _mean_shares(grades[row[0]], k, row[1]))
    return Table.of(
        [
            Column("model", lambda row: row[0]),
            Column("map", lambda row: f"`{row[1]}`"),
            *(Column(k, lambda row, k=k: shown(row, k), f"grades 0, 1, ..., {k}") for k in ("trained", "untrained")),
        ],
        rows,
    )


def _figure(grades: Mapping[str, Any]):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * max(1, len(grades)), 3.4), layout="constrained")
    axes = figure.subplots(1, max(1, len(grades)), squeeze=False, sharey=True)[0]
    for ax, (arm, entries) in zip(axes, grades.items(), strict=False):
        names = list(entries[0]["trained"]["shares"])
        for network, style in (("trained", "-"), ("untrained", ":")):
            shares = np.array([_mean_shares(entries, network, name) for name in names])
            for grade in range(shares.shape[1]):
                ax.plot(shares[:, grade], ls=style, marker="o", ms=3, color=COLOURS[grade], label=f"grade {grade}" if style == "-" else None)  # fmt: skip
        ax.set_title(arm, fontsize=9)
        ax.set_xlabel("map, from the input on")
    axes[0].set_ylabel("share of the energy")
    if grades:
        axes[0].legend(frameon=False, fontsize=7.5)
    return figure
