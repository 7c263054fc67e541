"""How many threads work over recordings may take."""

from __future__ import annotations

import os


def processors() -> int:
    """Number of processors this process may use (a Slurm job's share, not the machine's)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
