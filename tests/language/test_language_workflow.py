"""`snakemake language` for real, at a size that takes seconds: what it leaves, what a change repeats, the gate."""

import csv
import json

import pytest

from tests.workflow.conftest import copy_workflow

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

OVERLAY = """
run: tiny
language:
  corpus: {name: tiny, kind: builtin, vocabulary: 300}
  model: {width: 16, ff_dim: 32, blocks: 2, positions: 32, init_std: 0.05}
  arms:
    transformer: {heads: 2}
    grassmann: {rank: 6}
  study: {arms: [transformer, grassmann], seeds: [0, 1]}
  comparison: {planned: [[grassmann, transformer]]}
  gate: {low: null, high: null, mode: record}
  training: {epochs: 1, batch: 32, max_updates: 20, learning_rate: 0.01, detect_after: null, threads: 1}
  references: []
"""
TINY = ("--configfile", "tiny.yaml")
TRAININGS = [f"train_language {arm}/{seed}" for arm in ("grassmann", "transformer") for seed in (0, 1)]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = copy_workflow(tmp_path_factory.mktemp("language"))
    project.path("tiny.yaml").write_text(OVERLAY)
    return project


def trainings(project, *arguments):
    return [job for job in project.plan("language", *TINY, *arguments) if job.startswith("train_language")]


def test_the_study_from_text_to_tables(project):
    assert trainings(project) == TRAININGS
    # a published range that nothing reaches: the Transformer is measured, the gated arm never starts
    project.edit("tiny.yaml", "{low: null, high: null, mode: record}", "{low: 1.5, high: 2.0, mode: enforce}")
    missed = project.snakemake("language", *TINY, "--cores", "2", "--keep-going", check=False)
    assert missed.returncode != 0
    assert "published range 1.5 to 2: parity not reached, above it" in missed.stdout
    run = project.path("results/tiny/language")
    assert (run / "parity.json").is_file() and not list((run / "grassmann").rglob("log.jsonl"))

    project.edit("tiny.yaml", "{low: 1.5, high: 2.0, mode: enforce}", "{low: null, high: null, mode: record}")
    project.snakemake("language", *TINY, "--cores", "2")
    rows = {row["arm"]: row for row in csv.DictReader((run / "tables.csv").open())}
    assert set(rows) == {"transformer", "grassmann"}
    for arm, row in rows.items():
        assert row["seeds"] == "2" and "not comparable with raw WikiText-2" in row["note"]
        for seed in (0, 1):
            record = json.loads((run / arm / f"seed{seed}" / "record.json").read_text())
            assert (record["track"], record["arm"], record["seed"]) == ("language", arm, seed)
            assert record["updates"] == 20
    assert "there is no published number for tiny" in (run / "tables.md").read_text()
    assert (run / "figures" / "training.svg").is_file()

    # nothing is left to do; a comment and a neutral key repeat no training, an arm's setting its own alone
    assert project.plan("language", *TINY) == []
    script = project.path("workflow_scripts/train.py")
    script.write_text(script.read_text() + "\n# a remark\n")
    project.edit("tiny.yaml", "threads: 1", "log_every: 7, threads: 1")
    assert trainings(project) == []
    project.edit("tiny.yaml", "{rank: 6}", "{rank: 5}")
    assert trainings(project) == TRAININGS[:2]
    project.edit("tiny.yaml", "{rank: 5}", "{rank: 6}")
    project.edit("tiny.yaml", "seeds: [0, 1]", "seeds: [0, 1, 2]")
    assert trainings(project) == ["train_language grassmann/2", "train_language transformer/2"]


@pytest.mark.parametrize(
    "change, message",
    [
        ("arms: [transformer, grasmann]", "language.study.arms names 'grasmann'"),
        ("seeds: [one]", "language.study.seeds"),
    ],
)
def test_a_wrong_config_is_refused_by_name(project, change, message):
    key = change.split(":")[0]
    bad = OVERLAY.replace({"arms": "arms: [transformer, grassmann]", "seeds": "seeds: [0, 1]"}[key], change)
    project.path("bad.yaml").write_text(bad)
    refused = project.snakemake("language", "--configfile", "bad.yaml", "--dry-run", check=False)
    assert refused.returncode != 0 and message in refused.stdout
