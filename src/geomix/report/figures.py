"""Figures as SVG and PNG: their style, how they are written, and what several of them are made of.

The same results give the same bytes: no dates, fixed SVG ids, bundled font. Colours are Okabe and Ito's, told apart
by colour-blind readers, and each arm also has a marker of its own; lines carry their names instead of a legend.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geomix.files import atomic_path
from geomix.report.names import FORMS

if TYPE_CHECKING:  # matplotlib takes half a second to import: only those who draw pay for it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#5B5B5B", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X"
STYLE = {
    "svg.hashsalt": "geomix",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#808080",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "figure.dpi": 100,
    "savefig.dpi": 160,
}


def empty_figure(sentence: str) -> Figure:
    """A figure that holds a sentence alone: a declared file whose data are not there."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 1.5), layout="constrained")
    figure.text(0.5, 0.5, sentence, ha="center", va="center", color="#808080")
    return figure


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write NAME.svg and NAME.png, without dates and program names: the same figure gives the same bytes."""
    without = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    for form, metadata in ((form, without[form]) for form in FORMS):
        with atomic_path(folder / f"{name}.{form}") as path:
            figure.savefig(path, format=form, metadata=metadata)


def draw(name: str, folder: Path, make: Callable[[], Figure]) -> None:
    """Write the figure that `make` makes under the style of all figures."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        save_figure(make(), folder, name)


def new_figure(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure of so many inches with its panels, (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def look_of(number: int) -> dict[str, str]:
    """Colour and marker of a study's arm number 0, 1, ...; from the ninth on the colours come again, with hollow markers."""
    again, i = divmod(number, len(COLOURS))
    colour = COLOURS[i]
    return {"color": colour, "marker": MARKERS[i], "markerfacecolor": "white" if again else colour}


def plain_ticks(ax: Axes) -> None:
    """Numbers such as 20 and 0.5 on a logarithmic axis, at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def name_ends(ax: Axes, ends: list[tuple[float, str, str, float]]) -> None:
    """Write each line's name right of the panel, tied to the line's end, moved apart where names would overlap."""
    if not ends:
        return
    first, last = min(min(line.get_xdata()) for line in ax.lines), max(x for *_, x in ends)
    if first < last:
        ax.set_xlim(first, last)
    low, high = (ax.transData.transform((0, v))[1] for v in ax.get_ylim())
    ends = sorted(ends)
    heights = [(ax.transData.transform((0, end[0]))[1] - low) / (high - low) for end in ends]
    step = min(0.07, 1 / len(ends))
    for i in range(1, len(heights)):  # up from the lowest, then down again from the top
        heights[i] = max(heights[i], heights[i - 1] + step)
    heights[-1] = min(heights[-1], 1.0)
    for i in reversed(range(len(heights) - 1)):
        heights[i] = min(heights[i], heights[i + 1] - step)
    for (value, name, colour, x), height in zip(ends, heights, strict=True):
        ax.annotate(
            name, (x, value), xytext=(1.04, height), textcoords="axes fraction", va="center", color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkA": 0, "shrinkB": 3},
            annotation_clip=False,
        )  # fmt: skip
