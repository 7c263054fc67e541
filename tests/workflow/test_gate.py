"""The gate: a missed target stops the gated arms and nothing else; once it is met only the rest runs."""

import json
import shutil

import pytest

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

SMOKE = ("--configfile", "config/smoke.yaml")


def test_missed_then_met(project, finished_smoke):
    shutil.copytree(finished_smoke.folder / "data", project.folder / "data")
    project.edit("config/smoke.yaml", "wer: 60.0", "wer: 0.0")
    project.edit("config/smoke.yaml", "epochs: 12", "epochs: 1")
    project.edit(
        "config/smoke.yaml", "arms: [attention, grassmann, symmetric, no_mixer]", "arms: [attention, grassmann]"
    )
    done = project.snakemake(*SMOKE, "--cores", "2", "--keep-going", check=False)
    assert done.returncode != 0
    assert "parity not reached: attention has" in done.stdout and "gate.mode" in done.stdout
    run = project.path("results", "smoke")
    parity = json.loads((run / "parity.json").read_text())
    assert parity["passed"] is False and parity["measured"]["test"] > 0
    assert (run / "own" / "attention" / "seed0" / "score" / "test.json").exists()
    assert not (run / "own" / "grassmann" / "seed0" / "record.json").exists()
    assert not (run / "tables.csv").exists()

    # again unchanged: only the gate and what waits for it
    assert not [job for job in project.plan(*SMOKE) if "attention" in job]

    # record mode opens it, and every table says so
    project.edit("config/smoke.yaml", "gate:\n", "gate:\n  mode: record\n")
    assert not [job for job in project.plan(*SMOKE) if job.startswith("train own/attention")]
    project.snakemake(*SMOKE, "--cores", "2")
    assert "parity not reached" in (run / "tables.md").read_text()
