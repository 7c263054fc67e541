"""`geomix status`: done, running, failed and waiting runs told apart."""

import json

import pytest

from geomix.cli import main
from geomix.commands.status import stale_lines, store_lines, study_status
from geomix.errors import UserError
from geomix.files import folder_lock, read_json, write_json
from geomix.settings import settings_hash
from geomix.speech.corpora.sources import Source, write_sources
from geomix.training.progress import LOG, Log
from geomix.training.store import State, User, claim, write_users
from tests.conftest import ROOT

STATES = ("0123456789ab", "ba9876543210")


@pytest.fixture
def study(tmp_path):
    """results/run with one run in each state."""
    results = tmp_path / "results/run"
    done = results / "own/attention/seed0"
    (done / "score").mkdir(parents=True)
    (done / "record.json").write_text("{}")
    (done / "score/test-clean.json").write_text("{}")
    trained = results / "own/attention/seed1"
    trained.mkdir(parents=True)
    (trained / "record.json").write_text("{}")
    for number, seed in enumerate((0, 1)):
        folder = tmp_path / "state" / STATES[number]
        with folder_lock(folder, "training"):
            users = [User("run", "own", "grassmann", seed), User("other", "own", "grassmann", seed)]
            for user in users[: 2 - number]:
                claim(folder, user, {"seed": seed}, {})
            log = Log(folder / LOG)
            log.append(kind="step", epoch=4, update=1200, loss=2.345, time_left_s=5000.0)
            log.close()
    failed = tmp_path / "logs/run/own/grassmann/seed1"
    failed.mkdir(parents=True)
    (failed / "train.log").write_text("progress\ngeomix: own/grassmann/seed1 emits only blanks\n")
    return tmp_path


PLANNED = {("own", arm, seed): "key" for arm in ("attention", "grassmann") for seed in (0, 1, 2)}


def test_each_state(study):
    with folder_lock(study / "state" / STATES[0], "training"):
        rows = {row.name: row for row in study_status(study / "results/run", PLANNED)}
    assert {name: row.state for name, row in rows.items()} == {
        "own/attention/seed0": "done",
        "own/attention/seed1": "trained",
        "own/attention/seed2": "waiting",
        "own/grassmann/seed0": "running",
        "own/grassmann/seed1": "failed",
        "own/grassmann/seed2": "waiting",
    }
    assert rows["own/grassmann/seed0"].detail == "epoch 4, update 1,200, loss 2.35, 83 min left"
    assert rows["own/grassmann/seed1"].detail == "own/grassmann/seed1 emits only blanks"
    assert rows["own/attention/seed0"].detail == "test-clean"


def test_a_language_model_is_done_when_trained(tmp_path):
    run = tmp_path / "results/run/language/grassmann/seed0"
    run.mkdir(parents=True)
    record = read_json("results/published/wikitext2/language/grassmann/seed0/record.json")
    write_json(run / "record.json", record | {"perplexity": {"test": {"batch_mean": 125.1046}}})
    (row,) = study_status(tmp_path / "results/run")
    assert (row.name, row.state, row.detail) == ("language/grassmann/seed0", "done", "test perplexity 125.1")


def test_command_prints_a_line_a_run_and_the_counts(study, capsys):
    main(["status", str(study / "results/run")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[4] == "1 done, 1 trained, 2 failed"
    assert lines[5:] == [
        f"{study}/state/{STATES[0]}  epoch 4, stopped  other/own/grassmann/seed0, run/own/grassmann/seed0",
        f"{study}/state/{STATES[1]}  epoch 4, stopped  run/own/grassmann/seed1",
    ]


def test_states_that_nobody_claims_and_finished_ones_are_named(study):
    write_users(study / "state" / STATES[1], [])
    State(study / "state" / STATES[0], False).finish({1: {"dev_cer": 3.0}})
    first, second = store_lines(study / "state")
    assert "finished 20" in first and "claimed by nobody" in second


def test_data_older_than_their_sources_are_named(tmp_path):
    recordings = [tmp_path / name for name in ("a.wav", "b.wav", "c.wav")]
    for path in recordings:
        path.write_bytes(b"RIFF")
    folder = tmp_path / "data/an4/train-01234567"
    write_sources(folder, map(Source.of, recordings))
    assert stale_lines(tmp_path / "data") == []
    recordings[0].write_bytes(b"RIFF more")
    sentence = f"{folder}: older than its sources: {recordings[0]}: has 9 bytes, 4 when it was prepared"
    cure = "; `snakemake --forcerun prepare_split` prepares it again"
    assert stale_lines(tmp_path / "data") == [f"{sentence}{cure}"]
    recordings[2].unlink()
    assert stale_lines(tmp_path / "data") == [f"{sentence}, and 1 more{cure}"]


def test_nothing_there_is_a_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["status", str(tmp_path / "results/none")])
    assert "no run here and none planned" in capsys.readouterr().err


def test_a_log_line_cut_short_does_not_matter(study):
    with open(study / "state" / STATES[0] / LOG, "a") as file:
        file.write(json.dumps({"kind": "step"})[:-3])
    assert study_status(study / "results/run")[2].state == "failed"


def test_a_run_whose_settings_changed_is_not_done(study):
    record = study / "results/run/own/attention/seed0/record.json"
    record.write_text(json.dumps({"settings": {"seed": 0}}))
    planned = {("own", "attention", 0): settings_hash({"seed": 0}, {}), ("own", "attention", 1): "other"}
    row = study_status(study / "results/run", planned)[0]
    assert row.state == "done"
    planned[("own", "attention", 0)] = settings_hash({"seed": 7}, {})
    row = study_status(study / "results/run", planned)[0]
    assert (row.state, row.detail) == ("changed", "its settings have changed since: the next call trains it again")
    folder = study / "state" / STATES[0]
    claim(folder, User("run", "own", "attention", 0), {"seed": 7}, {})
    State(folder, False).finish({1: {"dev_cer": 3.0}})
    row = study_status(study / "results/run", planned)[0]
    assert row.detail == f"its settings have changed since: the next call restores it from {folder}"


def test_what_slurm_refused_is_told_as_slurm_said_it(study):
    log = study / ".snakemake/log/2026-12-01T031426.892328.snakemake.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "[Tue Dec  1 03:14:37 2026]\nError in rule train:\n    message: SLURM sbatch failed. The error message was 'sbatch: error: "
        "Invalid generic resource (gres) specification'.\n    sbatch call:\n        sbatch --gpus=a1000:1\n\n    jobid: 20\n"
        "    input: data/x\n    output: results/run/own/attention/seed2/record.json, results/run/own/attention/seed2/log.jsonl\n"
    )
    row = study_status(study / "results/run", PLANNED)[2]
    assert row.state == "failed" and "Slurm refused train: sbatch: error: Invalid generic resource (gres)" in row.detail


def test_a_collision_is_not_told_when_the_other_job_is_gone(study):
    log = study / "logs/run/own/grassmann/seed1/train.log"
    with folder_lock(study / "state" / STATES[1], "training"):
        with pytest.raises(UserError) as collision, folder_lock(study / "state" / STATES[1], "training"):
            pass
    log.write_text(f"geomix: {collision.value}\n")
    row = {row.name: row for row in study_status(study / "results/run", PLANNED)}["own/grassmann/seed1"]
    assert (row.state, row.detail) == ("failed", "in epoch 4, update 1,200")


def test_a_study_that_nobody_named_and_that_has_not_begun(study, monkeypatch, capsys):
    (study / "config.yaml").write_bytes((ROOT / "config.yaml").read_bytes())
    (study / "results/run/corpus.json").write_text("{}")
    monkeypatch.chdir(study)
    main(["status"])
    assert (
        "these are the runs of config.yaml alone: for another study give --configfile FILE, or a folder: results/run"
        in (capsys.readouterr().out)
    )
