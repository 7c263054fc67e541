"""A checkout of its own for a test that runs the workflow: what Snakemake reads, without any results."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "config.yaml", "config", "profiles", "rules", "slurm", "workflow_scripts")


def copy_project(folder: Path, *finished: Path) -> Path:
    """Copy the workflow's files to `folder`, and with them whole folders of an earlier copy (data, results, state) with their times kept."""
    folder.mkdir(parents=True)
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    for path in finished:
        shutil.copytree(path, folder / path.name, symlinks=True)
    return folder


def environment(**more: str) -> dict[str, str]:
    """The tests' environment with the interpreter's own folder first on PATH, one thread a process, and `more`."""
    path = f"{Path(sys.executable).parent}:{more.pop('PATH', os.environ['PATH'])}"
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more, "PATH": path}
