"""A copy of the workflow in a folder of its own, so that a test may edit it and run it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT

WORKFLOW = ("Snakefile", "config.yaml", "rules", "workflow_scripts", "config", "profiles")


@dataclass
class Project:
    """A folder with the workflow's files; `snakemake` runs there."""

    folder: Path

    def snakemake(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run snakemake in the folder; with `check`, a failure fails the test and shows the output."""
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", "--nocolor", *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if check and done.returncode:
            pytest.fail(
                f"snakemake {' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stdout[-6000:]}"
            )
        return done

    def plan(self, *arguments: str) -> list[str]:
        """Jobs that a dry run lists, as `rule track/arm/seed/set` or `rule split` with what they have of these, sorted."""
        text = self.snakemake("--dry-run", *arguments).stdout
        jobs = []
        for block in re.split(r"\n(?=\[|(?:local)?(?:rule|checkpoint) )", text):
            rule = re.search(r"^(?:local)?(?:rule|checkpoint) (\w+):", block, re.MULTILINE)
            if not rule or "\n    jobid:" not in block:
                continue
            wildcards = re.search(r"^    wildcards: (.*)$", block, re.MULTILINE)
            values = dict(pair.split("=", 1) for pair in wildcards[1].split(", ")) if wildcards else {}
            keys = ("track", "arm", "seed", "set") if "arm" in values else ("split",)
            jobs.append(f"{rule[1]} {'/'.join(values[key] for key in keys if key in values)}".strip())
        return sorted(jobs)

    def path(self, *parts: str) -> Path:
        return self.folder.joinpath(*parts)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text in one of the copied files."""
        text = self.path(path).read_text(encoding="utf-8")
        assert old in text, f"{path} has no {old!r}"
        self.path(path).write_text(text.replace(old, new), encoding="utf-8")


def copy_workflow(folder: Path) -> Project:
    folder.mkdir(parents=True, exist_ok=True)
    for name in WORKFLOW:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    return Project(folder)


@pytest.fixture
def project(tmp_path) -> Project:
    """The workflow's files alone: nothing has run."""
    return copy_workflow(tmp_path)


@pytest.fixture(scope="session")
def finished_smoke(tmp_path_factory) -> Project:
    """The smoke study of two arms after a full run. Tests that use it restore what they edit."""
    project = copy_workflow(tmp_path_factory.mktemp("smoke"))
    project.path("two_arms.yaml").write_text(
        "study: {arms: [attention, grassmann]}\ncomparison: {planned: [[grassmann, attention]]}\n"
    )
    project.snakemake("--configfile", "config/smoke.yaml", "two_arms.yaml", "--cores", "2")
    return project


@pytest.fixture
def smoke(finished_smoke):
    """The finished smoke study; the workflow's files are put back after the test."""
    yield finished_smoke
    for name in WORKFLOW:
        source, target = ROOT / name, finished_smoke.folder / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
