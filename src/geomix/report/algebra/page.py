"""What the pages of all phases share: figures, remarks, the line about the machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object
from geomix.report.figures import COLOURS, MARKERS

REMARKS = "remarks.json"


def remark(folder: Path, key: str) -> str:
    """What was written by hand after the run on a departure, from remarks.json; nothing where there is none."""
    path = folder / REMARKS
    return read_object(path).get(key, "") if path.is_file() else ""


def machine_line(records: Iterable[dict[str, Any]]) -> str:
    """Where and when the jobs ran and what they took."""
    records = list(records)
    commits = sorted({(r["commit"] or "unknown")[:10] + (" (dirty)" if r["dirty"] else "") for r in records})
    seconds = sum(r["cpu_seconds"] for r in records)
    return (
        f"{len(records)} job{'s' if len(records) > 1 else ''}, {seconds / 60:.1f} CPU-minutes in all on one thread of {records[0]['cpu']}; torch "
        f"{records[0]['packages'].get('torch', '-')}; commit {', '.join(commits)}; finished {max(r['finished'] for r in records)[:16]} UTC."
    )


def seed_marks(values: dict[str, list[float]], label: str):
    """A row an arm: a mark a seed, a bar at the mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.2 + 0.34 * len(values)), layout="constrained")
    ax = figure.subplots()
    for y, numbers in enumerate(values.values()):
        ax.plot(numbers, [y] * len(numbers), ls="", marker=MARKERS[0], ms=5.5, alpha=0.6, color=COLOURS[0])
        ax.plot([np.mean(numbers)] * 2, [y - 0.3, y + 0.3], color="#000000", lw=1.6)
    ax.set_yticks(range(len(values)), list(values))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(label)
    return figure
