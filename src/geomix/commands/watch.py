"""`geomix status --watch`: the trainings of a study in a terminal, again and again, until it is interrupted."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from geomix.files import read_json
from geomix.report.text import aligned_table
from geomix.training.progress import LOG, duration, read_log
from geomix.training.store import stored

SPARKS = "▁▂▃▄▅▆▇█"
DEV = {"dev_wer": "WER {:.1f} %", "dev_cer": "CER {:.1f} %", "dev_perplexity": "perplexity {:.1f}"}
SPEED = {"audio_s_per_s": "{:,.0f} audio-s/s", "tokens_per_s": "{:,.0f} tokens/s"}
# states of `geomix status` in the order of the picture
SHOWN_FIRST = ("running", "failed", "changed", "waiting", "trained", "done")


class Row(Protocol):
    """What `geomix status` says of a training: its name (track/arm/seedN), its state and what there is to say of it."""

    name: str
    state: str
    detail: str


@dataclass(frozen=True)
class Gate:
    """Which arms wait for the gate, and why they still do; `reason` is empty once it is passed."""

    arms: frozenset[str]
    reason: str

    @classmethod
    def of(cls, config: Mapping[str, Any] | None, results: Path) -> Gate:
        """Of a resolved configuration; without one nothing is known to wait."""
        gate = (config or {}).get("gate")
        if not gate or (results / "parity.passed").is_file():
            return cls(frozenset(), "")
        gated = frozenset(arm for arm, definition in config["arms"].items() if definition.get("gated"))
        measured = results / "parity.json"
        found = (
            read_json(measured, "sentence")["sentence"] if measured.is_file() else f"{gate['arm']} is not measured yet"
        )
        return cls(gated, f"waits for the gate: {found}")


def watch(results: Path, status: Callable[[], Sequence[Row]], config: Mapping[str, Any] | None, seconds: float) -> None:
    """Draw what `status` says of the study every `seconds` until Ctrl-C; once where the output is no terminal."""
    if not sys.stdout.isatty():
        print("\n".join(frame(results, status(), config)))
        return
    try:
        while True:
            size = shutil.get_terminal_size()
            lines = frame(results, status(), config, size.lines - 1)
            clipped = (line[: size.columns - 1] + "\x1b[K\n" for line in lines)
            sys.stdout.write("\x1b[H" + "".join(clipped) + "\x1b[J")
            sys.stdout.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        print()


def frame(
    results: Path, rows: Sequence[Row], config: Mapping[str, Any] | None = None, height: int | None = None
) -> list[str]:
    """Lines of one picture, `height` at most: running trainings first, then what failed or waits with the reason, then the rest."""
    rows = sorted(rows, key=lambda row: SHOWN_FIRST.index(row.state))
    gate, logs = Gate.of(config, results), logs_of(results)
    counts = Counter(row.state for row in rows)
    title = f"{results}  {time.strftime('%H:%M:%S')}  " + ", ".join(
        f"{counts[s]} {s}" for s in SHOWN_FIRST if counts[s]
    )
    header = ["training", "state", "epoch", "dev", "loss", "speed", "left", ""]
    table = [_cells(row, logs.get(row.name, results / row.name / LOG), gate) for row in rows]
    lines = [title, "", *(aligned_table(header, table) if table else ["no training yet"])]
    if height and len(lines) > height:
        lines = [*lines[: height - 1], f"... and {len(lines) - height + 1} more"]
    return lines


def logs_of(results: Path) -> dict[str, Path]:
    """Name of a run's training -> the log in the store, the one written last."""
    found: dict[str, Path] = {}
    written: Callable[[Path], float] = lambda path: path.stat().st_mtime
    for entry in stored(results.parent.parent / "state"):
        path = entry.folder / LOG
        for user in entry.users if path.is_file() else ():
            if user.run == results.name and (user.name not in found or written(path) > written(found[user.name])):
                found[user.name] = path
    return found


def _cells(row: Row, log: Path, gate: Gate) -> list[str]:
    lines = read_log(log) if log.is_file() and row.state != "waiting" else []
    epochs, steps = ([line for line in lines if line.get("kind") == kind] for kind in ("epoch", "step"))
    last = steps[-1] if steps else {}
    running = row.state == "running"
    losses = [line.get("train_loss") for line in epochs]
    if len(epochs) < 2:
        losses = [line.get("loss") for line in steps]
    left = last.get("time_left_s")
    told = row.detail if row.state in ("failed", "changed") else ""
    if row.state == "waiting":
        told = gate.reason if row.name.split("/")[-2] in gate.arms and gate.reason else row.detail or "not begun"
    return [
        row.name,
        row.state,
        str(lines[-1]["epoch"]) if lines else "",
        _named(DEV, epochs[-1] if epochs else {}),
        sparkline(losses),
        _named(SPEED, last) if running else "",
        duration(left) if running and isinstance(left, int | float) else "",
        told,
    ]


def _named(forms: Mapping[str, str], line: Mapping[str, Any]) -> str:
    """The first of a line's numbers that has a form, in it."""
    for key, form in forms.items():
        if isinstance(line.get(key), int | float):
            return form.format(line[key])
    return ""


def sparkline(values: Sequence[float | None], width: int = 16) -> str:
    """Numbers as a row of blocks, `width` at most, each the mean of its share: the lowest is the lowest block."""
    numbers = [v for v in values if isinstance(v, int | float)]
    if not numbers:
        return ""
    cells = min(width, len(numbers))
    edges = [round(i * len(numbers) / cells) for i in range(cells + 1)]
    means = [sum(numbers[a:b]) / (b - a) for a, b in zip(edges, edges[1:], strict=False)]
    low, spread = min(means), max(means) - min(means)
    return "".join(SPARKS[int((m - low) / spread * (len(SPARKS) - 1) + 0.5) if spread else 0] for m in means)
