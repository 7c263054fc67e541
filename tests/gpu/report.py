"""Rows of the run: what was checked or measured, and the files that hold it."""

from __future__ import annotations

import datetime
import platform
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from geomix.files import write_json, write_text

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Row:
    """One check (error and limit) or measurement (microseconds, GB/s, share of the copy rate) of a part of the run."""

    part: str
    case: str
    error: float | None = None
    limit: float | None = None
    microseconds: float | None = None
    gb_per_s: float | None = None
    of_copy: float | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the error is a number within its limit; a measurement has none and is fine."""
        return self.limit is None or (self.error is not None and self.error <= self.limit)


@dataclass
class Run:
    """All rows, and what stopped a part."""

    device: torch.device
    rows: list[Row] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    def part(self, name: str, rows: Callable[[torch.device], Iterator[Row]]) -> None:
        """Collect a part's rows; an exception becomes a failed row, and the next part goes on."""
        begun = time.monotonic()
        try:
            for row in rows(self.device):
                self.rows.append(row)
                print(line(row), flush=True)
        except Exception as error:
            traceback.print_exc()
            self.rows.append(Row(name, "stopped", float("inf"), 0.0, note=f"{type(error).__name__}: {error}"[:500]))
        self.seconds[name] = round(time.monotonic() - begun, 1)
        print(f"== {name}: {self.seconds[name]} s", flush=True)

    @property
    def failed(self) -> list[Row]:
        """Rows whose error is beyond the limit."""
        return [row for row in self.rows if not row.ok]


def line(row: Row) -> str:
    """A row for a terminal."""
    if row.limit is not None:
        return f"{'ok  ' if row.ok else 'FAIL'} {row.part:<18} {row.case:<70} {row.error:.1e} (limit {row.limit:.0e}) {row.note}"
    rate = "" if row.gb_per_s is None else f"{row.gb_per_s:8.1f} GB/s {100 * (row.of_copy or 0):5.1f} % of a copy"
    spent = "" if row.microseconds is None else f"{row.microseconds:10.1f} us"
    return f"     {row.part:<18} {row.case:<70} {spent} {rate} {row.note}"


def device_name(device: torch.device) -> str:
    """The GPU's or the processor's name, as a folder."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = platform.processor() or platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def write(run: Run, out: Path) -> Path:
    """gpu_test.json and gpu_test.md in a folder named after the device; returns the folder."""
    folder = out / device_name(run.device)
    about = {
        "device": torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else platform.processor(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": _version("triton"),
        "python": sys.version.split()[0],
        "commit": _commit(),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": {**run.seconds, "all": round(time.monotonic() - run.begun, 1)},
        "checks": sum(row.limit is not None for row in run.rows),
        "failed": len(run.failed),
    }
    rows = [{**asdict(row), "ok": row.ok} for row in run.rows]
    finite = lambda v: v if not isinstance(v, float) or abs(v) < float("inf") else repr(v)
    write_json(folder / "gpu_test.json", {**about, "rows": [{k: finite(v) for k, v in row.items()} for row in rows]})
    text = [
        f"# Kernels on {about['device']}", "",
        f"torch {about['torch']}, CUDA {about['cuda']}, Triton {about['triton']}, Python {about['python']}, commit {about['commit']}, "
        f"{about['finished']}; {about['checks']} checks, {about['failed']} failed, {about['seconds']['all']} s.", "",
        "| part | case | error | limit | µs | GB/s | of a copy | note |", "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    form = lambda v, spec: "" if v is None else format(v, spec)
    for row in run.rows:
        text.append(
            f"| {row.part} | {row.case} | {form(row.error, '.1e')} | {form(row.limit, '.0e')} | {form(row.microseconds, '.1f')} | "
            f"{form(row.gb_per_s, '.1f')} | {form(row.of_copy, '.0%')} | {row.note} |"
        )
    write_text(folder / "gpu_test.md", "\n".join(text) + "\n")
    return folder


def _version(module: str) -> str | None:
    try:
        return __import__(module).__version__
    except ImportError:
        return None


def _commit() -> str | None:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip()[:12] or None
