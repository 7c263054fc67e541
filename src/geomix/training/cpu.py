"""This machine's processor: its name and its rate. No torch."""

from __future__ import annotations

import platform
import time


def cpu_name() -> str:
    """Model name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def matrix_flops(threads: int, size: int = 1024) -> float:
    """FLOP/s of fp32 matrix products on so many threads: the best of six, in processor time, so that other work does not count."""
    import numpy as np

    a = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    best = float("inf")
    for _ in range(6):
        begun = time.process_time()
        a @ a
        best = min(best, time.process_time() - begun)
    return threads * 2 * size**3 / best
