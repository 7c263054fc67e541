"""A checkout of its own for a test that runs the workflow, the Slurm profile included."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.workflow.conftest import Project, copy_workflow


def checkout(folder: Path, *finished: Path) -> Project:
    """The workflow's files in a new `folder`, and with them whole folders of an earlier checkout (data, results, state), their times kept."""
    folder.mkdir(parents=True)
    project = copy_workflow(folder)
    for source in (ROOT / "slurm", *finished):
        shutil.copytree(source, folder / source.name, dirs_exist_ok=True)
    return project


def environment(**more: str) -> dict[str, str]:
    """The tests' environment with the interpreter's own folder first on PATH, one thread a process, and `more`."""
    path = f"{Path(sys.executable).parent}:{more.pop('PATH', os.environ['PATH'])}"
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more, "PATH": path}
