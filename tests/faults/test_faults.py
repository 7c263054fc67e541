"""A study killed at random points, or out of disk, and run on: what it leaves is what an undisturbed one leaves. The long form is `make faults`."""

import shutil
import subprocess

import pytest

from tests.faults import harness

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

SEED, KILLS = 7, 3


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return harness.undisturbed(tmp_path_factory.mktemp("faults") / "undisturbed")


def test_three_kills(reference, tmp_path):
    """The training alone and the whole tree, in a save and after the training; at most one checkpoint interval is done twice."""
    plan = harness.kill_plan(SEED, KILLS)
    assert {kill.victim for kill in plan[:-1]} == {"training", "tree"}
    assert "save" in {kill.moment for kill in plan}
    outcome = harness.disturbed(tmp_path / "study", reference, plan)
    # on a busy machine a save may end before its kill comes: `make faults` counts those that were hit
    assert outcome.kills == KILLS
    assert not outcome.different and outcome.files >= 14
    # an epoch's end saves at the latest
    assert len(outcome.repeated) == KILLS - 1 and max(outcome.repeated) <= harness.UPDATES_PER_EPOCH


def test_full_disk(reference, tmp_path):
    """A checkpoint that does not fit ends in a sentence, leaves the one before whole, and with more room the study goes on from it."""
    project = harness.study(tmp_path / "study", reference.path("data"))
    state = project.path("state")
    state.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2000k", "tmpfs", state], capture_output=True).returncode:
        pytest.skip("a file system of one's own needs the right to mount")
    try:
        full = project.snakemake(*harness.CONFIG, "--cores", "1", check=False)
        assert full.returncode != 0
        assert "the disk is full; the previous file is kept: free some space and run again" in full.stdout
        assert "Traceback" not in full.stdout.partition("the disk is full")[0]
        subprocess.run(["mount", "-o", "remount,size=100m", state], check=True)
        resumed = project.snakemake(*harness.CONFIG, "--cores", "1")
        assert "going on from" in resumed.stdout
        outcome = harness.Outcome()
        harness.compare(project, reference, outcome)
        assert not outcome.different
    finally:
        subprocess.run(["umount", state], check=True)


def test_a_difference_is_seen(reference, tmp_path):
    """One bit in one file is a difference, and so is a step more in the log; else the comparison shows nothing."""
    for name in ("state", "results"):
        shutil.copytree(reference.path(name), tmp_path / name)
    other = harness.Project(tmp_path)
    same = harness.Outcome()
    harness.compare(other, reference, same)
    assert not same.different
    model = other.path(harness.ARM, "model.safetensors")
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    log = other.path(harness.ARM, "log.jsonl")
    log.write_text(log.read_text().replace('"update": 7,', '"update": 8,'))
    outcome = harness.Outcome()
    harness.compare(other, reference, outcome)
    assert outcome.different == [f"{harness.ARM}/model.safetensors", f"{harness.ARM}/log.jsonl"]
