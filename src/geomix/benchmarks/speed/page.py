"""The report of the speed probe: a table, a page, two figures and the run record of all pieces that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jinja2

from geomix.benchmarks.output import Panel, draw_curves, write_csv
from geomix.errors import UserError
from geomix.files import read_object, write_json, write_text

COLUMNS = (
    "part", "what", "form", "length", "seconds", "spread", "gflop", "gbyte", "floor_s", "of_floor", "real_time_factor",
    "peak_gb", "device", "threads",
)  # fmt: skip
SCALED = {"gflop": "flop", "gbyte": "bytes", "peak_gb": "peak_bytes"}  # columns in 1e9
Row = dict[str, Any]  # as `measure_piece` writes it
CTC = ("loss", "loss_difference", "gradient_difference")
# the goals of [Zhang2025]'s form (`paper`) against the anchored one at 128 tokens
GOALS = {"cpu": 2.8, "cuda": 3.5}
PUBLISHED = {
    ("paper", "anchored"): {128: 0.2223 / 0.0631, 512: 0.2276 / 0.0621, 4096: 0.2298 / 0.0621},
    ("anchored", "attention"): {128: 0.0631 / 0.0449, 512: 0.0621 / 0.0628, 4096: 0.0621 / 0.2459},
    ("grassmann", "attention"): {1271: 0.910 / 0.852},
}
"""Time of one form over another's in [Tested2026]'s second e00 run, fp32 on an Apple M3 Pro's GPU: a block by tokens, a step by frames."""


def build_report(pieces: Sequence[str | Path], folder: str | Path) -> dict[str, Any]:
    """Write speed.csv, speed.md, record.json and the plots of measured pieces into `folder`; return the record.

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
    machine = dict(zip(("device", "threads"), machines.pop(), strict=True))
    scaled = [{name: row[key] / 1e9 for name, key in SCALED.items() if key in row} for row in rows]
    write_csv(folder / "speed.csv", COLUMNS, [row | more | machine for row, more in zip(rows, scaled, strict=True)])
    record = {
        "ratios": paper_over_anchored(rows),
        "published": [asdict(beside) for beside in beside_published(rows)],
        "goal": GOALS.get(found[0]["record"]["device_type"]),
        "ctc": [{key: row[key] for key in CTC} for row in rows if row["part"] == "ctc"],
        "pieces": {piece["piece"]: piece["record"] for piece in found},
    }
    write_json(folder / "record.json", record)
    write_text(folder / "speed.md", _page(rows, record, found[0]["record"]))
    _draw(rows, folder)
    return record


def paper_over_anchored(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """{"mixer": {length: ratio}, "block": {...}}: time of the form `paper` over the anchored one's, where both agreed in the same run."""
    agreed = [row for row in rows if row["part"] == "block" and row.get("agrees")]
    times = {(row["what"], row["form"], row["length"]): row["seconds"] for row in agreed}
    ratios: dict[str, dict[str, float]] = {"mixer": {}, "block": {}}
    for (what, form, length), seconds in times.items():
        if form == "anchored" and (paper := times.get((what, "paper", length))):
            ratios[what][str(length)] = round(paper / seconds, 2)
    return ratios


@dataclass(frozen=True)
class Beside:
    """How many times as long one form takes as another, here and as published; `length` in tokens or frames."""

    what: str
    length: int
    ours: float
    theirs: float


def beside_published(rows: Sequence[Row]) -> list[Beside]:
    """Ratios of times that [Tested2026] measured too, where both forms were measured here (and agreed, if they are one function).

    Seconds of two machines are not comparable; how much slower one form is than another on each may be.
    """
    times = {
        (row["form"], row["length"]): row["seconds"] for row in rows if row["part"] == "step" or row["what"] == "block"
    }
    agreed, found = paper_over_anchored(rows)["block"], []
    for (slow, fast), published in PUBLISHED.items():
        for length, theirs in published.items():
            a, b = times.get((slow, length)), times.get((fast, length))
            ours = agreed.get(str(length)) if slow == "paper" else a and b and round(a / b, 2)
            if ours:
                part = "step" if slow == "grassmann" else "block"
                found.append(Beside(f"{part}: {slow} over {fast}", length, ours, round(theirs, 2)))
    return found


def _page(rows: Sequence[Row], record: dict[str, Any], machine: dict[str, Any]) -> str:
    parts = {
        part: [row for row in rows if row["part"] == part] for part in ("block", "step", "encoder", "ctc", "language")
    }
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(PAGE).render(
        machine=machine, rates=machine["rates"], record=record, lengths=lambda of: sorted({row["length"] for row in of}),
        forms=lambda of: dict.fromkeys(row["form"] for row in of), **parts,
    )  # fmt: skip


PAGE = """\
# Speed probe

{{ machine.device }}, {{ machine.threads }} thread{{ "s" if machine.threads > 1 }}, torch {{ machine.packages.torch }}, \
{{ "bf16 autocast" if machine.device_type == "cuda" else "fp32" }}, commit {{ (machine.commit or "unknown")[:10] }}\
{{ " (dirty)" if machine.dirty }}. Rates: {{ "%.0f" % (rates.flops / 1e9) }} GFLOP/s of matrix products ({{ rates.flops_source }}), \
{{ "%.1f" % (rates.bytes / 1e9) }} GB/s of a copy. Medians; forward and backward. *Of floor*: the least time that these rates allow \
(FLOPs over the one, bytes over the other, the larger) over the measured one.
{% if block %}

## One block, 16,384 tokens

| what | form |{% for n in lengths(block) %} L {{ n }}, ms (of floor) |{% endfor %}

| --- | --- |{% for n in lengths(block) %} ---: |{% endfor %}

{% for what in ("mixer", "block") %}{% for form in forms(block) %}
| {{ what }} | {{ form }} |{% for n in lengths(block) %}{% for r in block if (r.what, r.form, r.length) == (what, form, n) %} \
{{ "%.0f (%.2f)" % (1e3 * r.seconds, r.of_floor) }} |{% else %}  |{% endfor %}{% endfor %}

{% endfor %}{% endfor %}

{% if record.ratios.mixer %}
Paper's form over anchored form, whose values and gradients agreed in the same run: \
{% for what, ratios in record.ratios.items() %}{{ what }} \
{% for n, ratio in ratios.items() %}L {{ n }}: {{ "%g" % ratio }}{{ ", " if not loop.last }}{% endfor %}{{ "; " if not loop.last }}{% endfor %}.\
{% if record.goal %} Goal at L 128: at least {{ record.goal }}.{% endif %}

{% else %}
The forms were not compared with each other in this run: no ratio of their times is told.
{% endif %}

![One block against length](block.svg)
{% endif %}
{% if step %}

## Conformer-CTC training step, 16 utterances of 12.7 s

| arm | seconds | audio-s/s | GFLOP | of floor | peak GB |
| --- | ---: | ---: | ---: | ---: | ---: |
{% for r in step %}
| {{ r.form }} | {{ "%.2f | %.1f | %s | %.2f | %.2f" % (r.seconds, 1 / r.real_time_factor, "{:,.0f}".format(r.flop / 1e9), r.of_floor, r.peak_bytes / 1e9) }} |
{% endfor %}
{% endif %}
{% if record.published %}

## Ratios of times beside the published ones

[Tested2026], second e00 run, fp32 on an Apple M3 Pro's GPU; its Conformer step had plain attention and no padding.

| time of one over the other | length | here | published |
| --- | ---: | ---: | ---: |
{% for r in record.published %}
| {{ r.what }} | {{ "{:,}".format(r.length) }} | {{ "%.2f" % r.ours }} | {{ "%.2f" % r.theirs }} |
{% endfor %}
{% endif %}
{% if encoder %}

## Encoder at work: real-time factor and peak memory of the process

| arm |{% for n in lengths(encoder) %} {{ "{:,}".format(n) }} frames |{% endfor %}

| --- |{% for n in lengths(encoder) %} ---: |{% endfor %}

{% for arm in forms(encoder) %}
| {{ arm }} |{% for n in lengths(encoder) %}{% for r in encoder if (r.form, r.length) == (arm, n) %} \
{{ "%.4f, %.2f GB" % (r.real_time_factor, r.peak_bytes / 1e9) }} |{% else %}  |{% endfor %}{% endfor %}

{% endfor %}

![Encoder against length](encoder.svg)
{% endif %}
{% for r in ctc %}

## CTC loss

{{ r.what }}: {{ "%.1f" % (1e3 * r.seconds) }} ms; against the CPU in float64 the loss ({{ "%.3f" % r.loss }}) differs by \
{{ "%.1e" % r.loss_difference }}, the gradient by {{ "%.1e" % r.gradient_difference }} at most.
{% endfor %}
{% if language %}

## Language model at full size: the output layer

| logits | seconds a step | tokens/s | 30 epochs, h | of floor | peak GB |
| --- | ---: | ---: | ---: | ---: | ---: |
{% for r in language %}
| {{ r.form }} | {{ "%.2f | %s | %.1f | %.2f | %.2f" % (r.seconds, "{:,.0f}".format(r.tokens_per_second), r.hours_of_30_epochs, r.of_floor, r.peak_bytes / 1e9) }} |
{% endfor %}
{% endif %}
"""


def _draw(rows: Sequence[Row], folder: Path) -> None:
    """block.svg, encoder.svg and their PNGs, of the parts that are there."""

    def panel(title: str, xlabel: str, ylabel: str, chosen: Sequence[Row], value: Callable[[Row], float]) -> Panel:
        form = lambda name: [(row["length"], value(row)) for row in chosen if row["form"] == name]
        return Panel(title, xlabel, ylabel, {name: form(name) for name in dict.fromkeys(r["form"] for r in chosen)})

    tokens, frames = "tokens in a sequence", "encoder frames (25 a second)"
    blocks = {what: [r for r in rows if (r["part"], r["what"]) == ("block", what)] for what in ("mixer", "block")}
    encoder = [r for r in rows if r["part"] == "encoder"]
    if all(blocks.values()):
        time = lambda row: 1e3 * row["seconds"]
        titles = {what: (f"{what}, 16,384 tokens", tokens, "forward and backward, ms") for what in blocks}
        draw_curves(
            "block", folder, [[panel(*titles[what], chosen, time) for what, chosen in blocks.items()]], log=False
        )
    if encoder:
        factor = panel(
            "Real-time factor", frames, "seconds of work a second of audio", encoder, lambda r: r["real_time_factor"]
        )
        peak = panel("Peak memory", frames, "GB of the process", encoder, lambda r: r["peak_bytes"] / 1e9)
        draw_curves("encoder", folder, [[factor, peak]], log=False)
