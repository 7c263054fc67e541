"""The smoke study, run for real: what it leaves behind, and what a change does to what is there."""

import csv
import json
import os
import shutil
import subprocess
import sys

import pytest

from geomix.speech.scoring import read_text
from geomix.training.progress import read_log

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

SMOKE = ("--configfile", "config/smoke.yaml", "two_arms.yaml")
# the baseline, and an arm that waits for the gate; all arms run in the tests of faults and of Slurm
ARMS = ["attention", "grassmann"]


def geomix(project, *arguments):
    """Run the command in the project's folder; its output."""
    done = subprocess.run(
        [sys.executable, "-m", "geomix.cli", *arguments],
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def weights(project, run="smoke"):
    """Bytes of each arm's averaged model."""
    return {arm: project.path("results", run, "own", arm, "seed0", "model.safetensors").read_bytes() for arm in ARMS}


def said(project, arm="attention", run="smoke"):
    """What a training's job said last."""
    return project.path("logs", run, "own", arm, "seed0", "train.log").read_text()


def trained(project):
    """Jobs of the plan that train, restored ones included."""
    return [job for job in project.plan(*SMOKE) if job.startswith("train")]


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
        users = json.loads(smoke.path("state", record["settings_hash"], "users.json").read_text())
        assert users == [{"run": "smoke", "track": "own", "arm": arm, "seed": 0}]
    with open(run / "tables.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["arm"] for row in rows if row["set"] == "test") == ARMS
    for row in rows:
        assert float(row["wer_low"]) <= float(row["wer"]) <= float(row["wer_high"])
        assert float(row["wer"]) < 100
    assert "target of our own reached" in (run / "tables.md").read_text()


def test_decode_gives_the_studys_own_hypotheses_and_scores_byte_for_byte(smoke, tmp_path):
    (prepared,) = smoke.path("data/smoke").glob("test-*")
    models = [smoke.path("results/smoke/own", arm, "seed0") for arm in ARMS]
    manifest = prepared / "manifest/test.tsv"
    elsewhere = prepared.parent / "elsewhere"
    shutil.copytree(prepared / "manifest", elsewhere / "manifest")  # without its features
    for number, given in enumerate((manifest, elsewhere / "manifest" / "test.tsv")):
        status, said = geomix(smoke, "decode", *map(str, models), str(given), "--out", str(tmp_path / str(number)))
        assert status == 0, said
        for model in models:
            for file in ("hyp/test/text", "score/test.json", "score/test.tsv"):
                found = tmp_path / str(number) / model.parent.name / "seed0" / file
                assert found.read_bytes() == (model / file).read_bytes()
    shutil.rmtree(elsewhere)


def test_every_file_is_a_declared_output(smoke):
    """Snakemake knows of each file below data/ and results/ which rule makes it; audio and the page are declared by folder."""
    stray = smoke.path("results/smoke/own/stray.txt")
    stray.touch()
    listed = smoke.snakemake(*SMOKE, "--cores", "1", "--list-untracked").stdout.splitlines()
    stray.unlink()
    unknown = {line.strip() for line in listed if line.strip().startswith(("data/", "results/"))}
    (audio,) = (
        path.parent.relative_to(smoke.folder) for path in smoke.path("data/smoke").glob("audio-*/settings.json")
    )
    folders = (*(f"{audio}/{split}/" for split in ("train", "dev", "test")), "results/smoke/page/")
    assert {path for path in unknown if not path.startswith(folders)} == {"results/smoke/own/stray.txt"}


def test_comments_and_neutral_settings_run_nothing(smoke):
    for path in ("workflow_scripts/train.py", "rules/train.smk", "workflow_scripts/decode.py", "Snakefile"):
        text = smoke.path(path).read_text()
        smoke.path(path).write_text(text + "\n# a remark\n")
    smoke.edit("config/smoke.yaml", "  log_every: 20", "  log_every: 7\n  save_minutes: 1\n  device: cpu")
    assert smoke.plan(*SMOKE) == []


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


def test_forced_trainings_are_restored_and_say_so(smoke):
    before, tables = weights(smoke), smoke.path("results/smoke/tables.csv").read_bytes()
    smoke.snakemake(*SMOKE, "--cores", "2", "-R", "train")
    assert weights(smoke) == before and smoke.path("results/smoke/tables.csv").read_bytes() == tables
    for arm in ARMS:
        assert "restored, finished on" in said(smoke, arm) and f"geomix forget smoke {arm}" in said(smoke, arm)


def test_a_new_arm_in_its_own_run_restores_the_baseline_and_forget_gives_it_back(smoke):
    smoke.path("mine.yaml").write_text(
        "run: smoke_mine\narms: {mine: {mixer: pair, rank: 12, offsets: [1, 3]}}\nstudy: {arms: [attention, mine]}\n"
        "comparison: {planned: [[mine, attention]]}\ntraining: {epochs: 12}\n"
    )
    smoke.snakemake(*SMOKE, "mine.yaml", "--cores", "2")
    assert "restored" in said(smoke, "attention", "smoke_mine")
    assert "restored" not in said(smoke, "mine", "smoke_mine")
    records = [
        json.loads(smoke.path("results", run, "own/attention/seed0/record.json").read_text())
        for run in ("smoke", "smoke_mine")
    ]
    assert records[0]["settings_hash"] == records[1]["settings_hash"]
    state = smoke.path("state", records[0]["settings_hash"])
    assert [user["run"] for user in json.loads((state / "users.json").read_text())] == ["smoke", "smoke_mine"]
    mine = json.loads(smoke.path("results/smoke_mine/own/mine/seed0/record.json").read_text())["settings_hash"]
    status, text = geomix(smoke, "forget", "smoke_mine")
    assert status == 0 and mine in text
    assert not smoke.path("state", mine).exists() and state.exists()
    assert [user["run"] for user in json.loads((state / "users.json").read_text())] == ["smoke"]


def test_more_epochs_go_on_from_the_finished_training(smoke):
    smoke.path("longer.yaml").write_text(
        "run: smoke_longer\ntraining: {epochs: 13}\nstudy: {arms: [attention]}\ncomparison: {planned: []}\n"
    )
    smoke.snakemake(*SMOKE, "longer.yaml", "--cores", "1")
    assert "goes on from a copy of the 12 epochs" in said(smoke, "attention", "smoke_longer")
    epochs = [
        line["epoch"]
        for line in read_log(smoke.path("results/smoke_longer/own/attention/seed0/log.jsonl"))
        if line["kind"] == "epoch"
    ]
    assert epochs == list(range(1, 14))
    assert smoke.plan(*SMOKE) == []


def test_the_page_says_what_the_gate_said_last(smoke):
    page, before = smoke.path("results/smoke/tables.md"), smoke.path("results/smoke/tables.md").read_text()
    smoke.edit("config/smoke.yaml", "wer: 60.0", "wer: 0.0")
    done = smoke.snakemake("tables", *SMOKE, "--cores", "2", check=False)
    assert (
        done.returncode and "target of our own not reached: attention has" in done.stdout and "gate.mode" in done.stdout
    )
    assert "target of our own not reached" in page.read_text() and "Traceback" not in done.stdout
    smoke.edit("config/smoke.yaml", "wer: 0.0", "wer: 60.0")
    smoke.snakemake("tables", *SMOKE, "--cores", "2")
    assert page.read_text() == before


def test_status_names_prepared_data_that_are_older_than_their_sources(smoke):
    recording = next(smoke.path("data", "smoke").glob("audio-*/test/*/1/*.flac"))
    assert str(recording.name) not in geomix(smoke, "status")[1]
    times = recording.stat()
    os.utime(recording, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
    try:
        status, text = geomix(smoke, "status")
        assert recording.name in text and "older than" in text
        assert smoke.plan(*SMOKE) == []
    finally:
        os.utime(recording, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_another_choice_of_epochs_is_averaged_without_training(smoke):
    """The last test: what it leaves is of another configuration."""
    smoke.edit("config/smoke.yaml", "keep_best: 3", "keep_best: 9")
    done = smoke.snakemake(*SMOKE, "--cores", "2", check=False)
    assert done.returncode and "no longer kept" in done.stdout and "geomix forget" in done.stdout
    smoke.edit("config/smoke.yaml", "keep_best: 9", "keep_best: 2")
    smoke.snakemake(*SMOKE, "--cores", "2")
    for arm in ARMS:
        folder = smoke.path("results/smoke/own", arm, "seed0")
        assert len(json.loads((folder / "averaging.json").read_text())["epochs"]) == 2
        assert json.loads((folder / "record.json").read_text())["attempts"] == 1
    assert smoke.plan(*SMOKE) == []
