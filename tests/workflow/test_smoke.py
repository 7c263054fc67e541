"""The smoke study, run for real: what it leaves behind, and what a second run repeats (nothing but what changed)."""

import csv
import json

import pytest

from geomix.speech.scoring import read_text
from geomix.training.progress import read_log

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

SMOKE = ("--configfile", "config/smoke.yaml")
ARMS = ["attention", "grassmann", "no_mixer", "symmetric"]
TRAINING_CHAIN = ("average", "decode", "score", "settings", "train")
TRAINING_RULES = {*TRAINING_CHAIN, "prepare_corpus", "features", "normalisation", "tokenizer"}


def test_every_stage_leaves_what_it_promises(smoke):
    run = smoke.path("results", "smoke")
    for arm in ARMS:
        folder = run / "own" / arm / "seed0"
        record = json.loads((folder / "record.json").read_text())
        assert (record["arm"], record["track"], record["seed"]) == (arm, "own", 0)
        # two speeds of 48 utterances: the histogram that shows whether speed perturbation was on
        assert record["data"]["speed_histogram"] == {"1.0": 48, "1.1": 48}
        hypotheses = read_text(folder / "hyp" / "test" / "text")
        assert len(hypotheses) == 18
        words = json.loads((folder / "score" / "test.json").read_text())["words"]
        assert words["errors"] == words["substitutions"] + words["insertions"] + words["deletions"]
        epochs = [line for line in read_log(folder / "log.jsonl") if line["kind"] == "epoch"]
        assert [line["epoch"] for line in epochs] == list(range(1, 13))
    with open(run / "tables.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["arm"] for row in rows if row["set"] == "test") == ARMS
    for row in rows:
        assert float(row["wer_low"]) <= float(row["wer"]) <= float(row["wer_high"])
        assert float(row["wer"]) < 100
    assert (run / "tables.md").stat().st_size > 0
    assert list((run / "figures").glob("*.svg")) and list((run / "figures").glob("*.png"))


def test_a_second_run_has_nothing_to_do(smoke):
    assert smoke.plan(*SMOKE) == []


def test_a_comment_retrains_nothing(smoke):
    for path in ("workflow_scripts/train.py", "rules/train.smk", "workflow_scripts/decode.py", "Snakefile"):
        text = smoke.path(path).read_text()
        smoke.path(path).write_text(text + "\n# a remark\n")
    assert smoke.plan(*SMOKE) == []


def test_neutral_settings_retrain_nothing(smoke):
    smoke.edit("config/smoke.yaml", "  log_every: 20", "  log_every: 7\n  save_minutes: 1")
    smoke.edit("config.yaml", "device: auto", "device: cpu")
    assert smoke.plan(*SMOKE) == []


def test_one_arms_setting_retrains_that_arm_alone(smoke):
    smoke.edit("config/smoke.yaml", "symmetric: {rank: 12", "symmetric: {rank: 11")
    touched = [job for job in smoke.plan(*SMOKE) if job.split()[0] in TRAINING_RULES]
    assert touched == [f"{rule} own/symmetric/0" for rule in TRAINING_CHAIN]


def test_a_setting_of_all_arms_retrains_them_all_in_one_go(smoke):
    """Gated arms stand behind an `ancient` input, below which Snakemake does not look at a job's own params."""
    smoke.edit("config/smoke.yaml", "warmup: 60", "warmup: 61")
    touched = [job for job in smoke.plan(*SMOKE) if job.split()[0] in TRAINING_RULES]
    assert touched == sorted(f"{rule} own/{arm}/0" for rule in TRAINING_CHAIN for arm in ARMS)


def test_a_new_seed_runs_the_new_jobs_alone(smoke):
    smoke.edit("config/smoke.yaml", "seeds: [0]", "seeds: [0, 1]")
    touched = [job for job in smoke.plan(*SMOKE) if job.split()[0] in TRAINING_RULES]
    assert touched == sorted(f"{rule} own/{arm}/1" for rule in TRAINING_CHAIN for arm in ARMS)


def test_a_new_arm_runs_the_new_jobs_alone(smoke):
    smoke.edit(
        "config/smoke.yaml",
        "  no_mixer: {ff_dim: 96}",
        "  no_mixer: {ff_dim: 96}\n  signed: {rank: 12, offsets: [1, 2, 4]}",
    )
    smoke.edit("config/smoke.yaml", "arms: [attention, ", "arms: [signed, attention, ")
    touched = [job for job in smoke.plan(*SMOKE) if job.split()[0] in TRAINING_RULES]
    assert touched == [f"{rule} own/signed/0" for rule in TRAINING_CHAIN]


def test_tables_are_rebuilt_from_scores_and_records_alone(smoke):
    """Without the data, the states and the models: byte for byte the same tables, and no job but the report's."""
    run = smoke.path("results", "smoke")
    before = {name: (run / name).read_bytes() for name in ("tables.csv", "tables.md")}
    moved = [smoke.path("data"), smoke.path("state")]
    for folder in moved:
        folder.rename(folder.with_suffix(".away"))
    try:
        for name in before:
            (run / name).unlink()
        assert {job.split()[0] for job in smoke.plan("tables", *SMOKE)} == {"report", "tables"}
        smoke.snakemake("tables", *SMOKE, "--cores", "1")
    finally:
        for folder in moved:
            folder.with_suffix(".away").rename(folder)
    assert {name: (run / name).read_bytes() for name in before} == before
