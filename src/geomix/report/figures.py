"""Figures of a run as SVG and PNG: error rates with intervals, training curves, cost, pair diagnostics.

The same results give the same bytes: no dates, fixed SVG ids, bundled font. Colours are Okabe and Ito's, told apart
by colour-blind readers, and each arm also has a marker of its own; lines carry their names instead of a legend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geomix.files import atomic_path
from geomix.report.names import FORMS, figure_names
from geomix.report.tables import Results

if TYPE_CHECKING:  # matplotlib takes half a second to import: only those who draw pay for it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# what a figure says that has nothing to show
NOTHING = {
    "wer": "No training has been scored yet.",
    "training": "No training has left a log of its epochs.",
    "cost": "No training has left a record yet.",
    "pairs": "No training has left diagnostics of its pairs.",
}
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


def draw_figures(results: Results, folder: Path) -> list[str]:
    """Draw the study's figures (`figure_names`) into `folder`; return their names (files NAME.svg, NAME.png).

    A figure for which nothing has been trained yet says so.
    """
    import matplotlib

    drawn = {"wer": _wer, "training": _training, "cost": _cost, "pairs": _pairs}
    names = figure_names(results.study.settings)
    with matplotlib.rc_context(STYLE):
        for name in names:
            figure = drawn[name](results) or empty_figure(NOTHING[name])
            if results.mark:
                figure.text(0.995, 0.005, results.mark, ha="right", va="bottom", color="#B00000", fontsize=8)
            save_figure(figure, folder, name)
    return names


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


def _figure(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, np.ndarray]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def look_of(number: int) -> dict[str, str]:
    """Colour and marker of a study's arm number 0, 1, ...; from the ninth on the colours come again, with hollow markers."""
    again, i = divmod(number, len(COLOURS))
    colour = COLOURS[i]
    return {"color": colour, "marker": MARKERS[i], "markerfacecolor": "white" if again else colour}


def _look(results: Results, arm: str) -> dict[str, str]:
    return look_of(results.study.arms.index(arm))


def _label(results: Results, track: str, arm: str) -> str:
    return arm if len(results.study.tracks) == 1 else f"{arm} ({track})"


def _wer(results: Results) -> Figure | None:
    """A panel a set: each arm's WER with its interval, and the target of the gate."""
    study = results.study
    places = [(track, arm) for arm in study.arms for track in study.tracks]
    if not results.rows:
        return None
    figure, axes = _figure(
        1, len(study.sets), max(6.0, 1.9 + 2.5 * len(study.sets)), 1.5 + 0.42 * len(places), sharey=True
    )
    targets = {t["set"]: t["wer"] for t in study.gate["targets"]} if study.gate else {}
    for ax, name in zip(axes[0], study.sets, strict=True):
        shown = []
        for y, (track, arm) in enumerate(places):
            row = results.row(track, arm, name)
            if row is None:
                ax.text(
                    0.5, y, "missing", transform=ax.get_yaxis_transform(), ha="center", va="center", color="#808080"
                )
                continue
            look = _look(results, arm)
            ends = [row.wer.low, row.wer.high] if np.isfinite(row.wer.low) else [row.wer.estimate] * 2
            shown += [row.wer.estimate, *ends]
            ax.plot(ends, [y, y], color=look["color"], lw=2, solid_capstyle="round")
            ax.plot([row.wer.estimate], [y], ls="", ms=6, **look)
            ax.annotate(
                f"{row.wer.estimate:.1f}", (row.wer.estimate, y), (0, 6), textcoords="offset points", ha="center"
            )
        if name in targets:
            ax.axvline(targets[name], color="#B00000", lw=1, ls=(0, (4, 3)), zorder=1.5)
            ax.annotate(
                f"target {targets[name]:g}", (targets[name], 0), (3, 2), xycoords=("data", "axes fraction"),
                textcoords="offset points", color="#B00000", fontsize=8,
            )  # fmt: skip
            # a target far outside (a smoke run's 100 %) must not squeeze the intervals
            if shown and max(shown) - min(shown) > 0.15 * abs(targets[name] - np.mean(shown)):
                shown.append(targets[name])
        if shown:
            margin = 0.12 * (max(shown) - min(shown)) or 1.0
            ax.set_xlim(max(-margin / 2, min(shown) - margin), max(shown) + margin)
        ax.set_title(f"{name}, {next((r.speakers for r in results.rows if r.set == name), 0)} speakers")
        ax.set_xlabel("WER, %")
        ax.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(places)), [_label(results, *place) for place in places])
    axes[0, 0].set_ylim(len(places) - 0.4, -0.7)
    figure.suptitle("Word error rate, 95 % intervals over speakers and seeds", x=0.01, ha="left", fontsize=11)
    return figure


def _training(results: Results) -> Figure | None:
    """Training loss and dev CER by epoch, a line a seed, a row of panels a track."""
    curves: dict[str, dict[str, list[list[dict]]]] = {}
    for t in results.trained:
        epochs = t.lines("epoch")
        if epochs:
            curves.setdefault(t.track, {}).setdefault(t.arm, []).append(epochs)
    if not curves:
        return None
    figure, axes = _figure(len(curves), 2, 9.5, 0.5 + 3.3 * len(curves))
    for row, (track, arms) in zip(axes, curves.items(), strict=True):
        for ax, key, label in (
            (row[0], "train_loss", "training loss, nats an utterance"),
            (row[1], "dev_cer", "dev CER, %"),
        ):
            ends = []
            for arm, seeds in arms.items():
                look = _look(results, arm)
                for epochs in seeds:
                    points = [(e["epoch"], e[key]) for e in epochs if e.get(key) is not None]
                    if points:
                        x, y = zip(*points, strict=True)
                        ax.plot(x, y, color=look["color"], lw=1.3, alpha=0.85)
                        last = points[-1]
                if points:
                    ax.plot([last[0]], [last[1]], ms=4.5, clip_on=False, zorder=3, **look)
                    ends.append((last[1], arm, look["color"], last[0]))
            if ends and min(v for line in ax.lines for v in line.get_ydata()) > 0:
                ax.set_yscale("log")
                plain_ticks(ax)
            ax.set_xlabel("epoch")
            ax.set_ylabel(label)
            ax.xaxis.get_major_locator().set_params(integer=True)
            _name_ends(ax, ends)
        title = "Training curves" + (f", track {track}" if len(results.study.tracks) > 1 else "")
        most = max(len(seeds) for seeds in arms.values())
        row[0].set_title(f"{title}: " + (f"{most} seeds an arm, a line each" if most > 1 else "one seed an arm"))
    return figure


def plain_ticks(ax: Axes) -> None:
    """Numbers such as 20 and 0.5 on a logarithmic axis, at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _name_ends(ax: Axes, ends: list[tuple[float, str, str, float]]) -> None:
    """Write each line's name right of the panel, tied to the line's end, moved apart where names would overlap."""
    if not ends:
        return
    ax.set_xlim(min(min(line.get_xdata()) for line in ax.lines), max(x for *_, x in ends))
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


def _cost(results: Results) -> Figure | None:
    """Parameters and training FLOPs of each arm, and the training rate."""
    bars = []
    for arm, track in ((arm, track) for arm in results.study.arms for track in results.study.tracks):
        records = [t.record for t in results.trained if (t.arm, t.track) == (arm, track)]
        if records:
            record = records[0]
            rates = [r.domain.audio_seconds_per_second for r in records if r.domain.audio_seconds_per_second]
            bars.append(
                (
                    (track, arm),
                    record.subject.parameters / 1e6,
                    (record.domain.flops_per_audio_second or np.nan) / 1e9,
                    np.mean(rates or [np.nan]),
                )
            )
    if not bars:
        return None
    figure, axes = _figure(1, 3, 10, 1.2 + 0.4 * len(bars), sharey=True)
    panels = ("parameters, million", "training GFLOP an audio-second", "audio-seconds trained a second")
    for column, (ax, label) in enumerate(zip(axes[0], panels, strict=True), 1):
        values = np.array([bar[column] for bar in bars])
        ax.barh(
            range(len(bars)),
            np.nan_to_num(values),
            color=[_look(results, bar[0][1])["color"] for bar in bars],
            height=0.62,
        )
        for y, value in enumerate(values):
            text = f"{value:.4g}" if np.isfinite(value) else "not recorded"
            ax.annotate(text, (np.nan_to_num(value), y), (3, 0), textcoords="offset points", va="center")
        ax.set_xlim(0, 1.22 * (np.nanmax(values) if np.isfinite(values).any() else 1))
        ax.set_xlabel(label)
        ax.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(bars)), [_label(results, *bar[0]) for bar in bars])
    axes[0, 0].invert_yaxis()
    figure.suptitle("Size and cost of the arms", x=0.01, ha="left", fontsize=11)
    return figure


def _pairs(results: Results) -> Figure | None:
    """For each pair arm: the sine between partners and the mean gate, block by block, before and after training."""
    arms = {}
    for t in results.trained:
        if t.diagnostics.start and t.diagnostics.end:
            arms.setdefault((t.track, t.arm), t)  # the first seed stands for the arm
    if not arms:
        return None
    figure, axes = _figure(len(arms), 2, 9.5, 0.5 + 2.5 * len(arms), sharex=True)
    for row, ((track, arm), t) in zip(axes, arms.items(), strict=True):
        colour = _look(results, arm)["color"]
        ends = []
        for when, shade in (("start", "#8A8A8A"), ("end", colour)):
            blocks = getattr(t.diagnostics, when)
            x = [block.block + 1 for block in blocks]
            sine = {q: _values(block.sine.get(q) for block in blocks) for q in ("0.05", "0.25", "0.5", "0.75", "0.95")}
            row[0].fill_between(x, sine["0.05"], sine["0.95"], color=shade, alpha=0.13, lw=0)
            row[0].fill_between(x, sine["0.25"], sine["0.75"], color=shade, alpha=0.25, lw=0)
            row[0].plot(x, sine["0.5"], color=shade, marker="o", ms=4, lw=1.6)
            gate = _values(block.mean_gate for block in blocks)
            row[1].plot(x, gate, color=shade, marker="o", ms=4, lw=1.6)
            ends.append((when, shade, x[-1], sine["0.5"][-1], gate[-1]))
        for ax, column in zip(row, (3, 4), strict=True):
            # the upper label stands on its line's end and the lower one hangs from its, so that they never overlap
            for place, end in zip(("top", "bottom"), sorted(ends, key=lambda e: e[column]), strict=True):
                ax.annotate(
                    "after training" if end[0] == "end" else "at the start", (end[2], end[column]), (6, 0),
                    textcoords="offset points", color=end[1], va=place, annotation_clip=False,
                )  # fmt: skip
        row[0].set_title(f"{_label(results, track, arm)}, seed {t.seed}")
        row[0].set_ylabel("sine between partners")
        row[1].set_ylabel("mean gate (1: mixer closed)")
        for ax in row:
            ax.set_ylim(0, 1.04)
            ax.xaxis.get_major_locator().set_params(integer=True)
    for ax in axes[-1]:
        ax.set_xlabel("block")
    axes[0, 1].set_title("")
    figure.suptitle(
        "Pairs block by block: median, 25 to 75 % and 5 to 95 % of the sine; mean gate", x=0.01, ha="left", fontsize=11
    )
    return figure


def _values(values: Iterable[float | None]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in values], dtype=float)
