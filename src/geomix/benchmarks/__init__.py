"""Benchmarks: what the hot code costs, beside its floor and beside what a user would pick instead.

`BENCHMARKS` lists them; `geomix bench NAME` runs one. Each is a module with a dataclass `Options` (what the command line takes)
and `run(options)`. `clock.measure` is the one clock, and `forms.speed_up` alone says that something is faster.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: its module, and what it tells in a line."""

    module: str
    summary: str


BENCHMARKS = {
    "product": Benchmark("geomix.benchmarks.product", "Clifford products in every form, beside the copy floor"),
    "mixer": Benchmark(
        "geomix.benchmarks.mixer", "the pair mixer: paper form, averaged form, anchored form, fused form"
    ),
    "step": Benchmark("geomix.benchmarks.step", "a training step of each arm: audio-s/s, MFU, peak memory"),
    "speed": Benchmark(
        "geomix.benchmarks.speed", "the speed probe ([Tested2026], e00): a block, a Conformer step, an encoder at work"
    ),
    "espnet": Benchmark("geomix.benchmarks.espnet", "a training step in both tracks, ours and ESPnet's, side by side"),
    "granite": Benchmark("geomix.benchmarks.granite", "the full-size Granite model, beside transformers 4.57.1"),
    "statistics": Benchmark("geomix.benchmarks.statistics", "the scorer beside jiwer, the bootstrap"),
}
