"""The run record: what a table row must be able to say about the training behind it."""

from __future__ import annotations

import datetime
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from geomix.training import devices
from geomix.training.loop import Summary

PACKAGES = (
    "geomix",
    "torch",
    "torchaudio",
    "numpy",
    "sentencepiece",
    "safetensors",
    "soundfile",
    "kaldialign",
    "triton",
    "espnet",
)
# what makes a working tree dirty: code and settings; results that are tracked do not
CODE_PATHS = ("src", "rules", "workflow_scripts", "Snakefile", "config.yaml", "config", "pyproject.toml")


def code_version(root: Path | None = None) -> dict[str, Any]:
    """{"commit": hash, "dirty": bool} of the repository that holds this package; both None outside a repository."""
    root = root or Path(__file__).resolve().parents[3]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True, timeout=600
        ).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        present = [path for path in CODE_PATHS if (root / path).exists()]
        return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--", *present))}
    except (subprocess.SubprocessError, OSError):
        return {"commit": None, "dirty": None}


def package_versions() -> dict[str, str]:
    """Versions of the packages that a result depends on, Python's included."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def job_record(begun: float, used: float, device: torch.device) -> dict[str, Any]:
    """The record of a job that is no single training.

    begun, used : `time.perf_counter()` and `time.process_time()` at its start.
    """
    return {
        **code_version(),
        "cpu": devices.cpu_name(),
        "packages": package_versions(),
        "wall_seconds": round(time.perf_counter() - begun, 2),
        "cpu_seconds": round(time.process_time() - used, 2),
        "peak_memory_bytes": devices.peak_memory(device),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def training_record(summary: Summary, device: torch.device, threads: int) -> dict[str, Any]:
    """The part of a run record that any training has; the caller adds what was trained on what."""
    return {
        **code_version(),
        "device": devices.device_name(device),
        "cpu": devices.cpu_name(),
        "threads": threads,
        "packages": package_versions(),
        "epochs": summary.epochs,
        "updates": summary.updates,
        "skipped_updates": summary.skipped,
        "attempts": summary.attempts,
        "wall_seconds": round(summary.seconds, 2),
        "mfu": round(summary.mfu, 5),
        "data_wait": round(summary.data_wait, 5),
        "device_flops": summary.device_flops,
        "peak_memory_bytes": summary.peak_memory,
        "nondeterministic_ops": summary.nondeterministic_ops,
        "best_epochs": [{"epoch": epoch, "score": summary.scores[epoch]} for epoch in summary.best],
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
