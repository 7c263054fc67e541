"""The language study's results: parity, comparisons on log perplexity, tables and figures, from records and logs alone."""

from __future__ import annotations

import csv
import io
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomix.errors import UserError
from geomix.files import read_object, read_objects, write_text
from geomix.report.figures import COLOURS, NOTHING, STYLE, empty_figure, look_of, plain_ticks, save_figure
from geomix.report.names import figure_names
from geomix.report.text import markdown_table
from geomix.statistics import ratio_method
from geomix.statistics.targets import NO_GATE, named_sources, seeds_named, short_aim
from geomix.training.record import RunRecord
from geomix.training.results import Study

METHOD = ratio_method("perplexity", "perplexities")
CSV_COLUMNS = (
    "corpus", "arm", "seeds", "params", "unmatched", "valid", "valid_sd", "valid_token", "test", "test_sd", "test_token",
    "best_epoch", "tokens_per_second", "note",
)  # fmt: skip


def comparable(study: Study) -> bool:
    """Whether the published perplexities, which are of raw WikiText-2, belong beside these."""
    corpus = study.settings["corpus"]
    return (corpus["kind"], corpus.get("version")) == ("wikitext", "raw")


def mark_of(study: Study) -> str:
    """What must stand on every table of a language study, or nothing."""
    marks = []
    if not comparable(study):
        marks.append("not comparable with raw WikiText-2")
    path = study.folder / "parity.json"
    if study.gate is None:
        marks.append(NO_GATE)
    elif path.is_file() and (parity := read_object(path, "anchor"))["anchor"] is None:
        marks.append(f"{short_aim(parity)} not reached")
    return "; ".join(marks)


def gate_line(study: Study) -> str:
    """The state of a language study's gate in one line."""
    if study.gate is None:
        return "No gate: no arm waited for the baseline to reach a target."
    parity = read_object(study.folder / "parity.json", "sentence", "seeds")
    return f"{parity['sentence']} ({seeds_named(parity['seeds'])}).{named_sources(parity)}"


def build_report(folder: str | os.PathLike, out: str | os.PathLike | None = None) -> None:
    """Write tables.csv, tables.md and figures/ of results/<run>/language into `out`, or into it itself."""
    study = Study.read(folder)
    out = study.folder if out is None else Path(out)
    comparisons = _comparisons(study)
    figures = draw_figures(study, out / "figures")
    write_text(out / "tables.csv", _csv(study))
    write_text(out / "tables.md", _markdown(study, comparisons, figures))


def _comparisons(study: Study) -> list[dict[str, Any]]:
    """Those of comparisons.json, refused where they are not of the study's records as they are now."""
    path, logs = study.folder / "comparisons.json", {}
    for arm in study.arms:
        for split in study.sets:
            logs[arm, split] = np.mean(np.log(study.perplexities(arm, split)))
    found = read_objects(path, "a", "b", "set", "planned", "log_difference")
    now = [logs.get((c["a"], c["set"]), np.nan) - logs.get((c["b"], c["set"]), np.nan) for c in found]
    current = all(abs(value - c["log_difference"]) < 1e-9 for value, c in zip(now, found, strict=True))
    if not current or len(found) != len(logs) // 2 * (len(logs) // 2 - 1):
        raise UserError(f"{path}: is not of the records as they are now: run the compare step again")
    return found


def _row(study: Study, arm: str) -> dict[str, Any]:
    records = [trained.record for trained in study.of("", arm)]
    row: dict[str, Any] = {
        "corpus": study.corpus,
        "arm": arm,
        "seeds": len(records),
        "params": records[0].subject.parameters,
        "unmatched": records[0].subject.unmatched,
        "best_epoch": " ".join(str(record.domain.best_epoch) for record in records),
        "tokens_per_second": round(statistics.fmean(record.domain.tokens_per_second for record in records)),
    }
    for split in ("valid", "test"):
        values = study.perplexities(arm, split)
        row[split] = round(statistics.fmean(values), 2)
        row[f"{split}_sd"] = round(statistics.stdev(values), 2) if len(values) > 1 else None
        row[f"{split}_token"] = round(statistics.fmean(study.perplexities(arm, split, "token")), 2)
    notes = [mark] if (mark := mark_of(study)) else []
    if len(records) == 1:
        notes.append("one seed: no interval")
    row["note"] = "; ".join(notes)
    return row


def _csv(study: Study) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(study, arm) for arm in study.arms)
    return text.getvalue()


def _markdown(study: Study, comparisons: Sequence[dict[str, Any]], figures: Sequence[str]) -> str:
    record, mark = study.trainings[0].record, mark_of(study)
    data, model = record.subject.data, record.subject.settings["model"]
    splits = ", ".join(f"{part['tokens']:,} {split}" for split, part in data["splits"].items())
    training, origin = record.subject.settings["training"], record.origin
    # the references are of raw WikiText-2 at full length
    of_reference = "" if comparable(study) else "; raw WikiText-2, the whole recipe"
    parts = [
        f"# Language modelling, run {study.run}",
        f"{data['name']}: {splits} tokens of {data['vocabulary']:,} pieces, blocks of {data['block']} + 1; unigram entropy of "
        f"the training tokens {data['unigram_entropy']:.3f} nats, perplexity {np.exp(data['unigram_entropy']):.0f}. "
        f"{model['blocks']} layers, width {model['width']}, feed-forward {model['ff_dim']}; {_length(record)} of "
        f"{training['batch']} blocks each, learning rate {training['learning_rate']:g}; {origin.device}, commit "
        f"{(origin.commit or 'unknown')[:10]}{' (dirty)' if origin.dirty else ''}.",
        f"**{mark}.**" if mark else "",
        gate_line(study),
        "Perplexity at the epoch with the best validation perplexity, mean and standard deviation over seeds; "
        "the mean over batches (as the published rows) and, by tokens, the mean over tokens.",
        _table(
            ["arm", "parameters", "seeds", "valid", "test", "valid, by tokens", "test, by tokens", "best epoch"],
            [_arm_cells(_row(study, arm)) for arm in study.arms]
            + [
                [
                    r["system"],
                    "",
                    "",
                    *(f"{r[s]:.1f}" if s in r else "" for s in ("valid", "test")),
                    "",
                    "",
                    r["source"] + of_reference,
                ]
                for r in study.references
            ],
        ),
        "## Contrasts",
        f"{METHOD[0].upper()}{METHOD[1:]}. Contrasts that were not planned are exploratory; "
        "here on the validation text, in comparisons.json on both.",
        _table(
            ["set", "contrast", "ratio", "95 % interval", "Welch", "verdict"],
            [_contrast_cells(c) for c in comparisons if c["planned"] or c["set"] == "valid"],
        ),
    ]
    diagnostics = _diagnostics_table(study)
    if diagnostics:
        parts += [
            "## Pairs, layer by layer",
            "Median sine of the angle between a token's partners, share of partners with a sine below 0.05, and mean gate "
            "(1 keeps the token, 0 takes the mixture), at the start and after training, seed by seed averaged.",
            diagnostics,
        ]
    parts += ["## Figures", *(f"![{name}](figures/{name}.svg)" for name in figures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _length(record: RunRecord) -> str:
    """How long a training was: `400 updates (0.3 epochs)`."""
    data, training = record.subject.data, record.subject.settings["training"]
    seen = record.course.updates * training["batch"] * training.get("accumulation", 1)
    epochs = seen / data["splits"]["train"]["blocks"]
    return f"{record.course.updates:,} updates ({epochs:.2g} epochs)"


def _arm_cells(row: dict[str, Any]) -> list[str]:
    spread = {s: f" ± {row[f'{s}_sd']:.1f}" if row[f"{s}_sd"] is not None else "" for s in ("valid", "test")}
    return [
        row["arm"] + (" (unmatched)" if row["unmatched"] else ""),
        f"{row['params']:,}",
        str(row["seeds"]),
        *(f"{row[s]:.1f}{spread[s]}" for s in ("valid", "test")),
        *(f"{row[f'{s}_token']:.1f}" for s in ("valid", "test")),
        row["best_epoch"],
    ]


def _contrast_cells(c: dict[str, Any]) -> list[str]:
    name = f"{c['a']} / {c['b']}" + ("" if c["planned"] else " (exploratory)")
    if "low" not in c:
        return [c["set"], name, f"{c['ratio']:.3f}", "", "", "one seed: not a measured difference"]
    interval, welch = (f"{c[low]:.3f} to {c[high]:.3f}" for low, high in (("low", "high"), ("welch_low", "welch_high")))
    return [c["set"], name, f"{c['ratio']:.3f}", interval, welch, c["verdict"]]


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(markdown_table(head, rows))


def _layers(study: Study, arm: str, when: str) -> dict[str, np.ndarray] | None:
    """Per layer, averaged over seeds: sine (median), narrow (share below 0.05), gate; None without a pair mixer."""
    seeds = []
    for trained in study.of("", arm):
        found = getattr(trained.diagnostics, when)
        if not found:
            return None
        seeds.append([(block.sine["0.5"], block.narrow_share, block.mean_gate) for block in found])
    sine, narrow, gate = np.mean(seeds, axis=0).T
    return {"sine": sine, "narrow": narrow, "gate": gate}


def _diagnostics_table(study: Study) -> str:
    rows = []
    for arm in study.arms:
        for when in ("start", "end"):
            layers = _layers(study, arm, when)
            if layers:
                cells = [" ".join(f"{v:.2f}" for v in layers["sine"]), f"{100 * layers['narrow'].max():.2f} %"]
                rows.append([arm, when, *cells, " ".join(f"{v:.2f}" for v in layers["gate"])])
    head = ["arm", "when", "median sine, first to last layer", "below 0.05, at most", "mean gate, first to last layer"]
    return _table(head, rows) if rows else ""


def draw_figures(study: Study, folder: Path) -> list[str]:
    """Perplexity of each seed, validation curves, and pairs layer by layer, as SVG and PNG; the names drawn (`figure_names`)."""
    import matplotlib

    drawn = {"perplexity": _perplexity, "training": _training, "pairs": _pairs}
    names = figure_names(study.settings)
    with matplotlib.rc_context(STYLE):
        for name in names:
            figure = drawn[name](study) or empty_figure(NOTHING[name])
            if mark := mark_of(study):
                figure.text(0.995, 0.985, mark, ha="right", va="top", color="#B00000", fontsize=8)
            save_figure(figure, folder, name)
    return names


def _new_figure(rows: int, columns: int, width: float, height: float, **options: Any):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _looks(study: Study) -> dict[str, dict[str, str]]:
    return {arm: look_of(i) for i, arm in enumerate(study.arms)}


def _perplexity(study: Study):
    arms, looks = study.arms, _looks(study)
    figure, axes = _new_figure(1, 2, 9, 1.4 + 0.36 * len(arms), sharey=True)
    for ax, split, title in zip(axes[0], ("valid", "test"), ("validation", "test"), strict=True):
        for y, arm in enumerate(arms):
            values = study.perplexities(arm, split)
            ax.plot(values, [y] * len(values), ls="", ms=6, alpha=0.6, **looks[arm])
            ax.plot([statistics.fmean(values)] * 2, [y - 0.3, y + 0.3], color=looks[arm]["color"], lw=2)
        for reference in study.references:
            if split in reference and comparable(study):
                ax.axvline(reference[split], color="#808080", lw=0.8, ls=(0, (2, 3)))
        ax.set_xlabel(f"{title} perplexity")
        ax.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(arms)), arms)
    axes[0, 0].invert_yaxis()
    dotted = "; dotted: published" if comparable(study) else ""
    figure.suptitle(f"Perplexity: a mark a seed, a bar the mean{dotted}", x=0.01, ha="left", fontsize=11)
    return figure


def _training(study: Study):
    logs = {arm: study.of("", arm) for arm in study.arms}
    # one epoch is a row of points that the table has
    curves = any(len(log.lines("epoch")) > 1 for seeds in logs.values() for log in seeds)
    figure, axes = _new_figure(1, 2 if curves else 1, 10 if curves else 7, 4.0)
    left, right = axes[0, 0], axes[0, -1]
    for number, (arm, look) in enumerate(_looks(study).items()):
        steps = [[(s["update"], s["loss"]) for s in log.lines("step") if s["loss"] is not None] for log in logs[arm]]
        whole = min(map(len, steps))
        updates, losses = np.array([seed[:whole] for seed in steps]).transpose(2, 0, 1)
        style = "--" if number >= len(COLOURS) else "-"
        left.plot(updates[0], losses.mean(0), lw=1.3, ls=style, color=look["color"], label=None if curves else arm)
        for i, log in enumerate(logs[arm] if curves else []):
            points = [(e["epoch"], e["dev_perplexity"]) for e in log.lines("epoch")]
            right.plot(*zip(*points, strict=True), lw=1, ms=4.5, ls=style, label=None if i else arm, **look)
    left.set_xlabel("update")
    left.set_ylabel("training loss of a batch, nats, mean over seeds")
    entropy = study.trainings[0].record.subject.data["unigram_entropy"]
    left.axhline(entropy, color="#808080", lw=0.8, ls=(0, (2, 3)))
    left.annotate(
        "unigram entropy", (1, entropy), xycoords=("axes fraction", "data"), xytext=(-2, 2), textcoords="offset points",
        ha="right", color="#808080", fontsize=8,
    )  # fmt: skip
    if curves:
        right.set_xlabel("epoch")
        right.set_ylabel("validation perplexity, a line a seed")
        right.set_yscale("log")
        plain_ticks(right)
        right.xaxis.get_major_locator().set_params(integer=True)
    right.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    figure.suptitle("Training", x=0.01, ha="left", fontsize=11)
    return figure


def _pairs(study: Study):
    arms = [arm for arm in study.arms if _layers(study, arm, "end")]
    if not arms:
        return None
    looks = _looks(study)
    figure, axes = _new_figure(1, 2, 10, 3.6)
    for arm in arms:
        for when, style in (("start", {"ls": ":", "alpha": 0.7}), ("end", {"label": arm})):
            layers = _layers(study, arm, when)
            x = np.arange(1, len(layers["sine"]) + 1)
            axes[0, 0].plot(x, layers["sine"], lw=1.4, ms=4, **looks[arm], **style)
            axes[0, 1].plot(x, layers["gate"], lw=1.4, ms=4, **looks[arm], **style)
    for ax, label in zip(axes[0], ("median sine between partners", "mean gate (1: mixer closed)"), strict=True):
        ax.set_xlabel("layer")
        ax.set_ylabel(label)
        ax.set_ylim(0, 1.04)
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 1].legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    figure.suptitle("Pairs layer by layer: dotted at the start, solid after training", x=0.01, ha="left", fontsize=11)
    return figure
