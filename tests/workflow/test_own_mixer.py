"""The README's mixer of a user's own through the smoke study: trained, stopped, run on, averaged, decoded, in the table."""

import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch

from geomix.models.saved import load_model
from geomix.training.progress import read_log
from tests.conftest import ROOT

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

README = (ROOT / "README.md").read_text(encoding="utf-8").split("### Bring your own mixer")[1].split("\n## ")[0]
FILE = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
ARM = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)[1]
# the README's arm in the smoke study, in few epochs, whose accuracy says nothing
SMALL = "training: {epochs: 4}\ngate: null\n"
RUN = ("--configfile", "config/smoke.yaml", "my_arm.yaml", "small.yaml", "--cores", "1")
MODEL = "results/my_mixer/own/mean/seed0"


def stop_in_the_middle(project):
    """Run the study until the mixer has trained two epochs, then ask its training to stop, as a cluster does."""
    command = [sys.executable, "-m", "snakemake", *RUN]
    with subprocess.Popen(command, cwd=project.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 3600
            while not (logs := [log for log in mixers_logs(project) if epochs_in(log) >= 2]):
                assert process.poll() is None and time.monotonic() < end, "the mixer did not train two epochs"
                time.sleep(0.02)
            for child in psutil.Process(process.pid).children(recursive=True):
                if any(part.endswith(".train.py") for part in child.cmdline()):
                    child.send_signal(signal.SIGTERM)
            assert process.wait(3600) != 0
        finally:
            process.kill()
    return logs[0].parent


def mixers_logs(project):
    """Logs of the trainings with a source beside their state."""
    return [
        path.parent / "log.jsonl"
        for path in project.folder.glob("state/*/mixer_source.py")
        if epochs_in(path.parent / "log.jsonl")
    ]


def epochs_in(log):
    return sum('"kind": "epoch"' in line for line in log.read_text().splitlines()) if log.exists() else 0


def test_the_readmes_mixer_from_its_file_to_the_table(project):
    assert len(FILE.strip().splitlines()) <= 20
    project.path("my_mixer.py").write_text(FILE)
    project.path("my_arm.yaml").write_text(ARM)
    project.path("small.yaml").write_text(SMALL)
    state = stop_in_the_middle(project)
    assert epochs_in(state / "log.jsonl") < 4 and not project.path(MODEL, "record.json").exists()
    assert "going on from" in project.snakemake(*RUN).stdout
    assert [line["epoch"] for line in read_log(state / "log.jsonl") if line["kind"] == "epoch"] == [1, 2, 3, 4]
    assert re.search(r"^\|.*\bmean\b.*\|$", project.path("results/my_mixer/tables.md").read_text(), re.MULTILINE)
    assert len(project.path(MODEL, "hyp/test/text").read_text().splitlines()) == 18
    assert project.path(MODEL, "mixer_source.py").read_text() == FILE
    assert project.plan(*RUN) == []

    overlays = RUN[: RUN.index("--cores")]
    command = [sys.executable, "-m", "geomix.cli", "plan", *overlays]
    plan = subprocess.run(command, cwd=project.folder, capture_output=True, text=True, check=True).stdout
    assert "1 average, 1 average_own_mixer, 2 decode" in " ".join(plan.split()) and plan.count("measured on") == 2

    # how it is written is no setting; what it says is, of this arm alone
    project.path("my_mixer.py").write_text(FILE.replace("class", "# a remark\nclass"))
    assert project.plan(*RUN) == []
    before = outputs(project)
    project.path("my_mixer.py").write_text(FILE.replace("torch.sigmoid", "torch.tanh"))
    assert torch.equal(outputs(project), before)
    jobs = project.plan(*RUN)
    assert "train own/mean/0" in jobs and "average_own_mixer own/mean/0" in jobs and "describe" in jobs
    assert not any("attention" in job for job in jobs)
    project.path("my_mixer.py").unlink()
    assert torch.equal(outputs(project), before)
    done = project.snakemake("-n", *RUN, check=False)
    assert done.returncode and "arms.mean: my_mixer.py: no such file" in done.stdout


def outputs(project):
    """What the averaged model makes of some noise."""
    model = load_model(project.path(MODEL))
    features = torch.randn(1, 80, 80, generator=torch.Generator().manual_seed(0))
    return model.log_probs(features, torch.tensor([80]))[0]
