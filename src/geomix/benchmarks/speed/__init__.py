"""`geomix bench speed`: the speed probe ([Tested2026], e00), piece by piece, each in a process of its own; `snakemake speed` does the same.

What a mixer costs, in one block, one Conformer training step and a whole encoder at work.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from geomix.benchmarks.options import Common, option
from geomix.benchmarks.speed.pieces import PIECES
from geomix.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `geomix bench speed`; it writes pieces/, speed.csv, speed.md, record.json and the figures."""

    out: Path = option(Path("results/speed"), "folder of what is written")
    device: str = option("auto", "auto, cpu, cuda or mps")
    pieces: tuple[str, ...] = option(PIECES, "what to measure")
    seconds: float = option(15.0, "measuring time of a row")


def run(options: Options) -> None:
    """Measure the pieces and make the page of those asked for."""
    from geomix.benchmarks.clock import alone
    from geomix.benchmarks.speed.measure import measure_piece
    from geomix.benchmarks.speed.page import build_report

    if unknown := [piece for piece in options.pieces if piece not in PIECES]:
        raise UserError(f"--pieces {unknown[0]}: choose some of {', '.join(PIECES)}")
    files = [options.out / "pieces" / f"{piece}.json" for piece in options.pieces]
    for piece, file in zip(options.pieces, files, strict=True):
        alone(measure_piece, piece, file, threads=options.threads, device=options.device, budget=options.seconds)
        print(f"measured {piece}", flush=True)
    build_report(files, options.out)
    print((options.out / "speed.md").read_text(encoding="utf-8"))
