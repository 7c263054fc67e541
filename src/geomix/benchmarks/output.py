"""What benchmarks write: rows as CSV, and curves."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix.files import write_text
from geomix.report.figures import draw, look_of


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A line a row; numbers with four digits, what a row lacks as nothing."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()})
    write_text(path, text.getvalue())


@dataclass(frozen=True)
class Panel:
    """One panel of curves: label -> points (x, y), and the points of the floor below which nothing can lie."""

    title: str
    xlabel: str
    ylabel: str
    curves: Mapping[str, Sequence[tuple[float, float]]]
    floor: Sequence[tuple[float, float]] = ()


def draw_curves(name: str, folder: Path, panels: Sequence[Sequence[Panel]], *, log: bool = True) -> None:
    """NAME.svg and NAME.png: rows of panels; x is logarithmic, y too with `log`, else it begins at 0."""
    from matplotlib.figure import Figure

    def make() -> Figure:
        figure = Figure(figsize=(2.2 + 3.6 * len(panels[0]), 3.6 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), len(panels[0]), squeeze=False)
        names = list(dict.fromkeys(label for row in panels for panel in row for label in panel.curves))
        for ax, panel in zip(axes.flat, (panel for row in panels for panel in row), strict=True):
            for label, points in panel.curves.items():
                ax.plot(*zip(*sorted(points), strict=True), **look_of(names.index(label)), ms=4, lw=1.4, label=label)
            if panel.floor:
                ax.plot(*zip(*sorted(panel.floor), strict=True), color="#808080", ls=":", label="copy floor")
            ticks = sorted({x for points in panel.curves.values() for x, _ in points})
            ax.set_xscale("log")
            ax.set_xticks(ticks, [f"{x:,}" for x in ticks], rotation=30 if len(ticks) > 4 else 0)
            ax.minorticks_off()
            ax.set_yscale("log") if log else ax.set_ylim(bottom=0)
            ax.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
        return figure

    draw(name, folder, make)
