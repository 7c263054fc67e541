"""What the figures of a study show: error rates or perplexities, training curves, cost, pairs block by block."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from geomix.report.figures import STYLE, empty_figure, look_of, name_ends, new_figure, plain_ticks, save_figure
from geomix.report.names import figure_names
from geomix.training.results import Study, Trained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from geomix.report.rows import Row

# what a figure says that has nothing to show
NOTHING = {
    "wer": "No training has been scored yet.",
    "training": "No training has left a log of its epochs.",
    "cost": "No training has left a record yet.",
    "pairs": "No training has left diagnostics of its pairs.",
}


class Report(Protocol):
    """What figures ask of a report, of either study."""

    study: Study

    @property
    def mark(self) -> str:
        """What every figure must carry."""

    @property
    def trained(self) -> list[Trained]:
        """Trainings that have a row."""

    def figure(self, name: str) -> Figure | None:
        """One of its figures; None where there is nothing to show."""


def draw_figures(report: Report, folder: Path) -> list[str]:
    """Draw the study's figures (`figure_names`) into `folder`; return their names (files NAME.svg, NAME.png).

    A figure for which nothing has been trained yet says so.
    """
    import matplotlib

    names = figure_names(report.study.settings)
    with matplotlib.rc_context(STYLE):
        for name in names:
            figure = report.figure(name) or empty_figure(NOTHING[name])
            if report.mark:
                figure.text(0.995, 0.005, report.mark, ha="right", va="bottom", color="#B00000", fontsize=8)
            save_figure(figure, folder, name)
    return names


def _look(study: Study, arm: str) -> dict[str, str]:
    return look_of(study.arms.index(arm))


def _label(study: Study, track: str, arm: str) -> str:
    return arm if len(study.tracks) == 1 else f"{arm} ({track})"


def _interval(ax: Axes, y: int, look: dict[str, str], row: Row | None) -> list[float]:
    """An arm's rate with its ends at height y, or that it is missing; returns what stands there."""
    if row is None:
        ax.text(0.5, y, "missing", transform=ax.get_yaxis_transform(), ha="center", va="center", color="#808080")
        return []
    ends = [row.wer.low, row.wer.high] if np.isfinite(row.wer.low) else [row.wer.estimate] * 2
    ax.plot(ends, [y, y], color=look["color"], lw=2, solid_capstyle="round")
    ax.plot([row.wer.estimate], [y], ls="", ms=6, **look)
    ax.annotate(f"{row.wer.estimate:.1f}", (row.wer.estimate, y), (0, 6), textcoords="offset points", ha="center")
    return [row.wer.estimate, *ends]


def error_rates(study: Study, rows: Sequence[Row]) -> Figure | None:
    """A panel a set: each arm's WER with its interval, and the target of the gate."""
    of = {(row.track, row.arm, row.set): row for row in rows}
    places = [(track, arm) for arm in study.arms for track in study.tracks]
    if not rows:
        return None
    figure, axes = new_figure(
        1, len(study.sets), max(6.0, 1.9 + 2.5 * len(study.sets)), 1.5 + 0.42 * len(places), sharey=True
    )
    targets = {t["set"]: t["wer"] for t in study.gate["targets"]} if study.gate else {}
    for ax, name in zip(axes[0], study.sets, strict=True):
        shown = []
        for y, (track, arm) in enumerate(places):
            shown += _interval(ax, y, _look(study, arm), of.get((track, arm, name)))
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
        ax.set_title(f"{name}, {next((r.speakers for r in rows if r.set == name), 0)} speakers")
        ax.set_xlabel("WER, %")
        ax.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(places)), [_label(study, *place) for place in places])
    axes[0, 0].set_ylim(len(places) - 0.4, -0.7)
    figure.suptitle("Word error rate, 95 % intervals over speakers and seeds", x=0.01, ha="left", fontsize=11)
    return figure


def perplexities(study: Study, *, published: bool) -> Figure:
    """A panel a text: each arm's seeds and their mean, and the `published` perplexities where they belong there."""
    arms = study.arms
    figure, axes = new_figure(1, 2, 9, 1.4 + 0.36 * len(arms), sharey=True)
    for ax, split, title in zip(axes[0], ("valid", "test"), ("validation", "test"), strict=True):
        for y, arm in enumerate(arms):
            values, look = study.perplexities(arm, split), _look(study, arm)
            ax.plot(values, [y] * len(values), ls="", ms=6, alpha=0.6, **look)
            ax.plot([statistics.fmean(values)] * 2, [y - 0.3, y + 0.3], color=look["color"], lw=2)
        for reference in study.references:
            if split in reference and published:
                ax.axvline(reference[split], color="#808080", lw=0.8, ls=(0, (2, 3)))
        ax.set_xlabel(f"{title} perplexity")
        ax.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(arms)), arms)
    axes[0, 0].invert_yaxis()
    dotted = "; dotted: published" if published else ""
    figure.suptitle(f"Perplexity: a mark a seed, a bar the mean{dotted}", x=0.01, ha="left", fontsize=11)
    return figure


@dataclass(frozen=True)
class Curve:
    """A panel of training curves: the lines of a log of a `kind` (step or epoch), `x` and `y` their keys.

    level : a height that is marked, with its name
    """

    label: str
    y: str
    kind: str = "epoch"
    x: str = "epoch"
    level: tuple[str, float] | None = None

    def points(self, trained: Trained) -> list[tuple[float, float]]:
        """Of one training; lines without the number are left out."""
        return [(line[self.x], line[self.y]) for line in trained.lines(self.kind) if line.get(self.y) is not None]


def curves(report: Report, panels: Sequence[Curve], *, width: float = 9.5) -> Figure | None:
    """Training curves, a line a seed, a row of panels a track."""
    logged: dict[str, dict[str, list[Trained]]] = {}
    for trained in report.trained:
        if trained.lines("epoch"):
            logged.setdefault(trained.track, {}).setdefault(trained.arm, []).append(trained)
    if not logged:
        return None
    figure, axes = new_figure(len(logged), len(panels), width, 0.5 + 3.3 * len(logged))
    for row, (track, arms) in zip(axes, logged.items(), strict=True):
        for ax, panel in zip(row, panels, strict=True):
            _curves(ax, panel, {arm: (_look(report.study, arm), seeds) for arm, seeds in arms.items()})
        title = "Training curves" + (f", track {track}" if len(report.study.tracks) > 1 else "")
        most = max(len(seeds) for seeds in arms.values())
        row[0].set_title(f"{title}: " + (f"{most} seeds an arm, a line each" if most > 1 else "one seed an arm"))
    return figure


def _curves(ax: Axes, panel: Curve, arms: dict[str, tuple[dict[str, str], list[Trained]]]) -> None:
    ends = []
    for arm, (look, seeds) in arms.items():
        for trained in seeds:
            points = panel.points(trained)
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
    ax.set_xlabel(panel.x)
    ax.set_ylabel(panel.label)
    ax.xaxis.get_major_locator().set_params(integer=True)
    name_ends(ax, ends)
    if panel.level:
        name, height = panel.level
        ax.axhline(height, color="#808080", lw=0.8, ls=(0, (2, 3)))
        ax.annotate(
            name, (1, height), xycoords=("axes fraction", "data"), xytext=(-2, 2), textcoords="offset points",
            ha="right", color="#808080", fontsize=8,
        )  # fmt: skip


def cost(report: Report) -> Figure | None:
    """Parameters and training FLOPs of each arm, and the training rate."""
    bars = []
    for arm, track in ((arm, track) for arm in report.study.arms for track in report.study.tracks):
        records = [t.record for t in report.trained if (t.arm, t.track) == (arm, track)]
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
    figure, axes = new_figure(1, 3, 10, 1.2 + 0.4 * len(bars), sharey=True)
    panels = ("parameters, million", "training GFLOP an audio-second", "audio-seconds trained a second")
    for column, (ax, label) in enumerate(zip(axes[0], panels, strict=True), 1):
        values = np.array([bar[column] for bar in bars])
        ax.barh(
            range(len(bars)),
            np.nan_to_num(values),
            color=[_look(report.study, bar[0][1])["color"] for bar in bars],
            height=0.62,
        )
        for y, value in enumerate(values):
            text = f"{value:.4g}" if np.isfinite(value) else "not recorded"
            ax.annotate(text, (np.nan_to_num(value), y), (3, 0), textcoords="offset points", va="center")
        ax.set_xlim(0, 1.22 * (np.nanmax(values) if np.isfinite(values).any() else 1))
        ax.set_xlabel(label)
        ax.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(bars)), [_label(report.study, *bar[0]) for bar in bars])
    axes[0, 0].invert_yaxis()
    figure.suptitle("Size and cost of the arms", x=0.01, ha="left", fontsize=11)
    return figure


def pairs(report: Report) -> Figure | None:
    """For each pair arm: the sine between partners and the mean gate, block by block, before and after training."""
    arms = {}
    for t in report.trained:
        if t.diagnostics.start and t.diagnostics.end:
            arms.setdefault((t.track, t.arm), t)  # the first seed stands for the arm
    if not arms:
        return None
    figure, axes = new_figure(len(arms), 2, 9.5, 0.5 + 2.5 * len(arms), sharex=True)
    for row, ((track, arm), t) in zip(axes, arms.items(), strict=True):
        colour = _look(report.study, arm)["color"]
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
        row[0].set_title(f"{_label(report.study, track, arm)}, seed {t.seed}")
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
