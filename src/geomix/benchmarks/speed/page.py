"""The report of the speed probe: a table, a page, two figures and the run record of all pieces that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geomix.benchmarks.output import Panel, draw_curves, write_csv
from geomix.errors import UserError
from geomix.files import read_object, write_json, write_text
from geomix.report.text import markdown_table

COLUMNS = (
    "part", "what", "form", "length", "seconds", "spread", "gflop", "gbyte", "floor_s", "of_floor", "real_time_factor",
    "peak_gb", "device", "threads",
)  # fmt: skip
Row = dict[str, Any]  # as `measure_piece` writes it
# the goals of the paper's form against the anchored one at 128 tokens
GOALS = {"cpu": 2.8, "cuda": 3.5}


def build_report(pieces: Sequence[str | Path], folder: str | Path) -> dict[str, Any]:
    """Write e00.csv, e00.md, record.json and the plots of measured pieces into `folder`; return the record.

    Raises UserError when the pieces come from different machines or thread counts: their times are not comparable.
    """
    folder = Path(folder)
    found = [read_object(path, "piece", "rows", "record") for path in pieces]
    machines = {(p["record"]["device"], p["record"]["threads"]) for p in found}
    if len(machines) != 1:
        raise UserError(
            f"{folder}: pieces of {' and '.join(f'{d} with {t} threads' for d, t in sorted(machines))}: "
            "remove those of one and measure them again"
        )
    rows = [row for piece in found for row in piece["rows"]]
    device, threads = machines.pop()
    scaled = {"gflop": "flop", "gbyte": "bytes", "peak_gb": "peak_bytes"}
    lines = [
        row
        | {name: row[key] / 1e9 for name, key in scaled.items() if key in row}
        | {"device": device, "threads": threads}
        for row in rows
    ]
    write_csv(folder / "e00.csv", COLUMNS, lines)
    record = {
        "ratios": paper_over_anchored(rows),
        "goal": GOALS.get(found[0]["record"]["device_type"]),
        "ctc": [
            {k: row[k] for k in ("loss", "loss_difference", "gradient_difference")}
            for row in rows
            if row["part"] == "ctc"
        ],
        "pieces": {piece["piece"]: piece["record"] for piece in found},
    }
    write_json(folder / "record.json", record)
    write_text(folder / "e00.md", _page(rows, record, found[0]["record"]))
    _draw(rows, folder)
    return record


def paper_over_anchored(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """{"mixer": {length: ratio}, "block": {...}}: time of the paper's form over the anchored one's, where both agreed in the same run."""
    times = {
        (r["what"], r["form"], r["length"]): r["seconds"] for r in rows if r["part"] == "block" and r.get("agrees")
    }
    return {
        what: {
            str(length): round(times[what, "paper", length] / seconds, 2)
            for (other, form, length), seconds in times.items()
            if (other, form) == (what, "anchored") and (what, "paper", length) in times
        }
        for what in ("mixer", "block")
    }


def _page(rows: Sequence[Row], record: dict[str, Any], machine: dict[str, Any]) -> str:
    rates = machine["rates"]
    parts = [
        "# Speed probe (e00)",
        f"{machine['device']}, {machine['threads']} thread{'s' if machine['threads'] > 1 else ''}, torch {machine['packages']['torch']}, "
        f"{'bf16 autocast' if machine['device_type'] == 'cuda' else 'fp32'}, commit "
        f"{(machine['commit'] or 'unknown')[:10]}{' (dirty)' if machine['dirty'] else ''}. Rates: {rates['flops'] / 1e9:.0f} GFLOP/s of "
        f"matrix products ({rates['flops_source']}), {rates['bytes'] / 1e9:.1f} GB/s of a copy. Medians; forward and backward. *Of floor*: the least time that these rates allow (FLOPs over the one, bytes over the other, the "
        "larger) over the measured one.",
    ]
    for part, section in (
        ("block", _blocks),
        ("step", _steps),
        ("encoder", _encoders),
        ("ctc", _ctc),
        ("language", _language),
    ):
        if chosen := [row for row in rows if row["part"] == part]:
            parts += section(chosen, record)
    return "\n\n".join(parts) + "\n"


def _table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(markdown_table(head, lines))


def _blocks(rows: Sequence[Row], record: dict[str, Any]) -> list[str]:
    lengths = sorted({row["length"] for row in rows})
    cells = {(r["what"], r["form"], r["length"]): f"{1e3 * r['seconds']:.0f} ({r['of_floor']:.2f})" for r in rows}
    lines = [
        [what, form, *(cells.get((what, form, length), "") for length in lengths)]
        for what in ("mixer", "block")
        for form in dict.fromkeys(row["form"] for row in rows)
    ]
    ratios = "; ".join(
        f"{w} {', '.join(f'L {n}: {v:g}' for n, v in r.items())}" for w, r in record["ratios"].items() if r
    )
    goal = f" Goal at L 128: at least {record['goal']}." if record["goal"] else ""
    said = f"Paper's form over anchored form, whose values and gradients agreed in the same run: {ratios}.{goal}"
    return [
        "## One block, 16,384 tokens",
        _table(["what", "form", *(f"L {length}, ms (of floor)" for length in lengths)], lines),
        said if ratios else "The forms were not compared with each other in this run: no ratio of their times is told.",
        "![One block against length](block.svg)",
    ]


def _steps(rows: Sequence[Row], _: dict[str, Any]) -> list[str]:
    lines = [
        [
            r["form"],
            f"{r['seconds']:.2f}",
            f"{1 / r['real_time_factor']:.1f}",
            f"{r['flop'] / 1e9:,.0f}",
            f"{r['of_floor']:.2f}",
            _peak(r),
        ]
        for r in rows
    ]
    head = ["arm", "seconds", "audio-s/s", "GFLOP", "of floor", "peak GB"]
    return ["## Conformer-CTC training step, 16 utterances of 12.7 s", _table(head, lines)]


def _peak(row: Row) -> str:
    return f"{row['peak_bytes'] / 1e9:.2f}"


def _encoders(rows: Sequence[Row], _: dict[str, Any]) -> list[str]:
    lengths = sorted({row["length"] for row in rows})
    cells = {(r["form"], r["length"]): f"{r['real_time_factor']:.4f}, {_peak(r)} GB" for r in rows}
    lines = [[arm, *(cells.get((arm, n), "") for n in lengths)] for arm in dict.fromkeys(row["form"] for row in rows)]
    return [
        "## Encoder at work: real-time factor and peak memory of the process",
        _table(["arm", *(f"{n:,} frames" for n in lengths)], lines),
        "![Encoder against length](encoder.svg)",
    ]


def _ctc(rows: Sequence[Row], _: dict[str, Any]) -> list[str]:
    return ["## CTC loss"] + [
        f"{row['what']}: {1e3 * row['seconds']:.1f} ms; against the CPU in float64 the loss ({row['loss']:.3f}) differs by "
        f"{row['loss_difference']:.1e}, the gradient by {row['gradient_difference']:.1e} at most."
        for row in rows
    ]


def _language(rows: Sequence[Row], _: dict[str, Any]) -> list[str]:
    lines = [
        [
            r["form"],
            f"{r['seconds']:.2f}",
            f"{r['tokens_per_second']:,.0f}",
            f"{r['hours_of_30_epochs']:.1f}",
            f"{r['of_floor']:.2f}",
            _peak(r),
        ]
        for r in rows
    ]
    head = ["logits", "seconds a step", "tokens/s", "30 epochs, h", "of floor", "peak GB"]
    return ["## Language model at full size: the output layer", _table(head, lines)]


def _draw(rows: Sequence[Row], folder: Path) -> None:
    """block.svg, encoder.svg and their PNGs, of the parts that are there."""

    def panel(title: str, xlabel: str, ylabel: str, chosen: Sequence[Row], value: Callable[[Row], float]) -> Panel:
        curves: dict[str, list] = {}
        for row in chosen:
            curves.setdefault(row["form"], []).append((row["length"], value(row)))
        return Panel(title, xlabel, ylabel, curves)

    blocks = [
        panel(
            f"{what}, 16,384 tokens", "tokens in a sequence", "forward and backward, ms",
            [r for r in rows if (r["part"], r["what"]) == ("block", what)], lambda r: 1e3 * r["seconds"],
        )
        for what in ("mixer", "block")
    ]  # fmt: skip
    encoder, frames = [r for r in rows if r["part"] == "encoder"], "encoder frames (25 a second)"
    encoders = [
        panel(
            "Real-time factor", frames, "seconds of work a second of audio", encoder, lambda r: r["real_time_factor"]
        ),
        panel("Peak memory", frames, "GB of the process", encoder, lambda r: r["peak_bytes"] / 1e9),
    ]
    for name, panels in (("block", blocks), ("encoder", encoders)):
        if all(each.curves for each in panels):
            draw_curves(name, folder, [panels], log=False)
