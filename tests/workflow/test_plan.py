"""The DAG of the full study, and what a wrong configuration does: no job runs in these tests."""

import time
from collections import Counter

import pytest


def test_the_full_study_lists_every_job_within_ten_seconds(project):
    start = time.monotonic()
    jobs = Counter(job.split()[0] for job in project.plan())
    assert time.monotonic() - start < 10
    trainings = 4 * 3  # arms, seeds
    for rule in ("train", "average", "decode_espnet", "score_prefix_search"):
        # ESPnet's E-Branchformer, the gate's other anchor, is decoded by ESPnet alone
        assert jobs[rule] == trainings + (rule == "decode_espnet"), rule
    assert jobs["train_espnet"] == jobs["average_espnet"] == trainings + 1
    assert jobs["decode"] == 2 * trainings and jobs["score"] == 2 * trainings + 1 and jobs["decode_anchor"] == 4
    assert jobs["features"] == 3 + 1 + 4  # train at three speeds, dev, four evaluation sets
    for rule in (
        "prepare_corpus",
        "tokenizer",
        "normalisation",
        "measure_parity",
        "parity_gate",
        "compare",
        "report",
        "agreement",
    ):
        assert jobs[rule] == 1, rule


def test_downloads_are_jobs_only_when_asked_for(project):
    assert not any(job.startswith("download") for job in project.plan())
    project.edit("config.yaml", "download: false", "download: true")
    assert Counter(job.split()[0] for job in project.plan())["download_subset"] == 5


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  blocks: 15", "  blokcs: 15", ["model", "blokcs"]),
        ("optimizer: adam\n", "optimizer: adma\n", ["training.optimizer", "adma"]),
        ("arms: [attention, grassmann,", "arms: [attention, grasmann,", ["study.arms", "grasmann", "grassmann"]),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(project, old, new, words):
    project.edit("config.yaml", old, new)
    done = project.snakemake("--dry-run", check=False)
    assert done.returncode != 0
    for word in words:
        assert word in done.stdout
    assert "Traceback" not in done.stdout
