"""The plan of a study: the article's hours, arithmetic by hand on disk, and Snakemake's own count of the jobs."""

import copy
import re
from argparse import ArgumentParser

import pytest

from geomix.commands import plan as command
from geomix.errors import UserError
from geomix.files import write_json
from geomix.settings import load, training_settings
from geomix.settings.stages import split_key, splits_of
from geomix.studies.plan import audio_seconds, hours_of, make_plan
from geomix.training.pace import Machine
from geomix.training.store import State, User, claim
from tests.conftest import ROOT
from tests.slurm.project import checkout


@pytest.fixture(scope="module")
def full():
    return load(base=ROOT / "config.yaml")


def changed(config, **sections):
    config = copy.deepcopy(config)
    for section, keys in sections.items():
        config[section].update(keys)
    return config


def test_the_articles_hours(full, tmp_path):
    """4 to 8 A100 hours a run, 32 to 64 for the first seed, 96 to 192 in all: four arms, three seeds, two tracks."""
    plan = make_plan(full, tmp_path)
    assert len(plan.trainings) == 24
    # the other anchor is trained only when attention misses its target; attention itself is of the study
    assert [(t.track, t.arm, t.parameters) for t in plan.fallback] == [("espnet", "e_branchformer", 26_433_928)]
    assert plan.anchors == []
    for training in plan.trainings:
        assert training.hours == pytest.approx((4, 8), rel=0.02)
    assert hours_of(plan.trainings) == pytest.approx((96, 192), rel=0.02)
    first = plan.trainings[:8]
    assert {t.seed for t in first} == {0} and len({(t.track, t.arm) for t in first}) == 8
    assert hours_of(first) == pytest.approx((32, 64), rel=0.02)
    assert all(t.seed != 0 for t in plan.trainings[8:])


def test_longest_chain_passes_the_gate(full, tmp_path):
    plan = make_plan(full, tmp_path)
    assert plan.chain_hours == pytest.approx((8, 16), rel=0.02)  # attention, then a gated arm
    assert plan.chain.index("parity_gate") < [i for i, step in enumerate(plan.chain) if step.startswith("train")][1]
    ungated = make_plan(changed(full, study={"arms": ["attention", "no_mixer"]}), tmp_path)
    assert ungated.chain_hours == pytest.approx((4, 8), rel=0.02)
    assert "parity_gate" not in ungated.chain


def test_what_the_gate_wants_beside_the_study_is_named(full, tmp_path):
    config = changed(full, study={"tracks": ["own"]}, gate={"seeds": [0, 7]})
    plan = make_plan(config, tmp_path)
    assert {t.track for t in plan.trainings} == {"own"}
    assert [(t.track, t.arm, t.seed) for t in plan.anchors] == [("espnet", "attention", 0), ("espnet", "attention", 7)]
    assert [t.arm for t in plan.fallback] == ["e_branchformer"]
    assert plan.chain[3] == "train espnet/attention/seed0"


def test_a_study_without_a_gate_has_no_chain_through_one(full, tmp_path):
    plan = make_plan({**full, "gate": None}, tmp_path)
    assert plan.anchors == plan.fallback == [] and "parity_gate" not in {*plan.chain, *plan.jobs}
    assert plan.chain_hours == pytest.approx((4, 8), rel=0.02)


@pytest.mark.parametrize(
    ("dev", "test"),
    [
        (["dev-clean", "dev-other"], ["dev-clean", "dev-other", "test-clean", "test-other"]),
        ({"hold_out_speakers": ["19"]}, {"a": ["dev-clean", "dev-other"], "b": ["test-clean", "test-other"]}),
    ],
)
def test_each_archive_is_downloaded_once(full, tmp_path, dev, test):
    config = changed(full, corpus={"download": True, "dev": dev, "test": test}, gate={"targets": [], "fallback": None})
    for name in splits_of(config):
        folder = tmp_path / "data/librispeech100" / f"{name}-{split_key(config, name)}"
        write_json(folder / "split.json", {"seconds": 1.0})
    assert make_plan(config, tmp_path).jobs["download_subset"] == 5


def test_a_heavier_arm_is_slower(full, tmp_path):
    config = copy.deepcopy(full)
    config["arms"]["no_mixer"]["ff_dim"] = 4096
    hours = {t.arm: t.hours[0] for t in make_plan(config, tmp_path).trainings}
    assert hours["no_mixer"] > 1.4 * hours["attention"]
    assert hours["grassmann"] == hours["attention"]  # its FLOPs are fewer; no time is taken off for that


def test_disk_of_the_full_study(full, tmp_path):
    config = changed(full, study={"seeds": [0], "tracks": ["own"]}, gate={"track": "own", "fallback": None})
    stored = {s.kind.split(" (")[0].split(",")[0]: s.bytes for s in make_plan(config, tmp_path).storage}
    # 100.6 h at three speeds, 10.7 h that select epochs and 21.2 h of evaluation sets; 100 frames a second of 80 fp32 numbers
    train = 100.6 * (1 / 0.9 + 1 + 1 / 1.1) * 3600 * 100 * 80 * 4
    assert train == pytest.approx(35e9, rel=0.01)
    assert stored["features"] == pytest.approx(train + (10.7 + 21.2) * 3600 * 100 * 80 * 4, rel=1e-6)
    parameters = 26_958_472 + 2 * 26_021_992 + 26_945_032
    assert stored["checkpoints"] == 10 * 4 * parameters
    assert stored["averaged models"] == 4 * parameters
    assert stored["state folders"] == 3 * 16 * parameters


def test_disk_is_bounded_by_the_configuration(full, tmp_path):
    def kinds(**sections):
        return {s.kind.split()[0]: s.bytes for s in make_plan(changed(full, **sections), tmp_path).storage}

    own = {"study": {"tracks": ["own"]}, "gate": {"track": "own", "fallback": None}}
    base = kinds(**own)
    both = kinds()
    assert kinds(**own, features={"dtype": "float16"})["features,"] == base["features,"] / 2
    assert kinds(**own, training={"keep_best": 5})["checkpoints"] == base["checkpoints"] / 2
    assert kinds(**own, corpus={"speed_factors": [1.0]})["features,"] < base["features,"] / 2.4
    assert "speed" not in base  # only ESPnet needs copies of the audio
    # 304 h of 16-bit samples at 16 kHz
    assert both["speed"] == pytest.approx(35e9, rel=0.01)


def test_records_replace_the_formula(full, tmp_path):
    mixer = {"mixer": "attention", "heads": 4}
    record = {"audio_seconds_per_second": 12_000.0, "device": "NVIDIA H200", "mixer": mixer}
    write_json(tmp_path / "results/librispeech100/own/attention/seed0/record.json", record)
    write_json(
        tmp_path / "results/librispeech100/own/no_mixer/seed0/record.json",
        {**record, "mixer": {"mixer": "attention", "heads": 8}},  # of an arm that has changed since
    )
    plan = make_plan(full, tmp_path)
    by_run = {(t.arm, t.seed): t for t in plan.trainings if t.track == "own"}
    assert {t.basis for t in plan.trainings if t.track == "espnet"} == {"formula"}
    seconds = 70 * audio_seconds(full, tmp_path)["train"]
    for seed in (0, 1, 2):
        assert by_run["attention", seed].hours == pytest.approx((seconds / 12_000 / 3600,) * 2)
        assert by_run["attention", seed].basis == "measured on NVIDIA H200"
        assert by_run["no_mixer", seed].basis == "formula"
    assert [(t.track, t.seed) for t in plan.trainings if t.done and t.arm == "attention"] == [("own", 0)]


def test_prepared_corpora_are_counted(tmp_path):
    config = load(ROOT / "config" / "smoke.yaml", base=ROOT / "config.yaml")
    folders = {name: tmp_path / "data/smoke" / f"{name}-{split_key(config, name)}" for name in ("train", "dev", "test")}
    for name, seconds in (("train", 300.0), ("dev", 20.0), ("test", 30.0)):
        with pytest.raises(UserError, match=rf"{folders['train']}/split.json: .*snakemake prepare"):
            make_plan(config, tmp_path)
        write_json(folders[name] / "split.json", {"seconds": seconds})
    tokens = folders["train"] / "tokenizer/word-all/tokens.txt"
    with pytest.raises(UserError, match=rf"{tokens}: .*output units"):
        make_plan(config, tmp_path)
    tokens.parent.mkdir(parents=True)
    tokens.write_text("<blank>\n<unk>\nDO\n<sos/eos>\n")
    plan = make_plan(config, tmp_path)
    features = next(s for s in plan.storage if s.kind.startswith("features"))
    assert features.bytes == 350 * 100 * 80 * 4
    assert plan.there > 0


def test_printed(full, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    parser = ArgumentParser()
    command.add_arguments(parser)
    command.run(parser.parse_args(["--tflops", "312", "--utilisation", "5.3", "10.5"]))
    text = capsys.readouterr().out
    for piece in (
        "at 5.3 to 10.5 % of 312 TFLOP/s",
        "26,958,472",
        "longest chain",
        "training.keep_best",
        "waits for the gate",
    ):
        assert piece in text
    with pytest.raises(UserError, match="LOW <= HIGH"):
        command.run(parser.parse_args(["--utilisation", "10", "5"]))


def test_the_page_states_the_plan(full, tmp_path):
    """docs/cluster.md gives the full study's runs, hours and gigabytes as the plan does."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    plan = make_plan(full, tmp_path)
    low, high = hours_of(plan.trainings)
    assert f"{len(plan.trainings)} trainings, {low:.0f} to {high:.0f} A100 hours" in page
    assert f"two trainings, {plan.chain_hours[0]:.0f} to {plan.chain_hours[1]:.0f} h" in page
    stated = re.findall(r"^\| `\w+/`: .*?\| +([\d.]+) \|", page, re.MULTILINE)
    assert stated == [f"{stored.bytes / 1e9:.1f}" for stored in plan.storage]


@pytest.mark.workflow
@pytest.mark.parametrize("overlay", [None, "two_seeds"])
def test_jobs_are_snakemakes(tmp_path, overlay):
    """The plan's jobs a rule, and the order of the trainings, are what `snakemake -n` lists."""
    project = checkout(tmp_path / "project")
    overlays = []
    if overlay:
        overlays = [project.path("config", f"{overlay}.yaml")]
        overlays[0].write_text(
            "study: {seeds: [2, 5], arms: [no_mixer]}\ngate: {seeds: [2, 3]}\nfeatures: {dtype: float16}\n"
        )
    listed = project.snakemake("-n", *(["--configfile", *overlays] if overlays else []))
    table = listed.stdout[listed.stdout.index("Job stats") :].split("\n\n")[0]
    counts = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}
    counts.pop("total"), counts.pop("speech")
    plan = make_plan(load(*overlays, base=project.path("config.yaml")), project.folder)
    assert plan.jobs == counts


@pytest.mark.workflow
def test_first_seed_first(tmp_path):
    """Snakemake takes the first seed of all arms before the next ones, and so does the queue of a Slurm cluster."""
    project = checkout(tmp_path / "project")
    listed = project.snakemake("-n", "--profile", "slurm").stdout
    jobs = re.findall(r"^rule train(?:_espnet)?:\n(?:    .*\n)+", listed, re.MULTILINE)
    found = set()
    for job in jobs:
        seed = int(re.search(r"seed=(\d+)", job)[1])
        priority = re.search(r"priority: (-\d+)", job)
        found.add((seed, int(priority[1]) if priority else 0, int(re.search(r"--nice=(\d+)", job)[1])))
    # the fallback of the gate is trained only when the first anchor misses
    assert len(jobs) == 24 and found == {(0, 0, 0), (1, -1, 100), (2, -2, 200)}


def test_what_the_store_has_finished_is_done_and_other_settings_are_not(full, tmp_path):
    settings = training_settings(full, "attention", 0, "own")
    folder = tmp_path / "state/0123456789ab"
    folder.mkdir(parents=True)
    claim(folder, User("other", "own", "attention", 0), settings, {})
    State(folder, False).finish({1: {"dev_cer": 3.0}})
    record = tmp_path / "results/librispeech100/own/no_mixer/seed0/record.json"
    rate = {"audio_seconds_per_second": 12_000.0, "device": "H200", "mixer": {"mixer": "none"}}
    write_json(record, {**rate, "settings": {**training_settings(full, "no_mixer", 0, "own"), "seed": 1}})
    assert [(t.arm, t.seed) for t in make_plan(full, tmp_path).trainings if t.done] == [("attention", 0)]


@pytest.mark.parametrize(
    "hours, text",
    [((6.5e-7, 1.3e-6), "0.0023-0.0047 s"), ((0.05, 0.2), "3-12 min"), ((4.0, 8.0), "4-8 h"), ((2, 2), "2 h")],
)
def test_times_are_told_in_units_that_fit(hours, text):
    assert command._range(*hours) == text


def test_without_a_gpu_the_cpus_time_stands_beside_the_a100s(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "this_machine", lambda threads: Machine("Some CPU", 1e11, (0.2, 0.5), False))
    monkeypatch.chdir(ROOT)
    parser = ArgumentParser()
    command.add_arguments(parser)
    command.run(parser.parse_args([]))
    text = capsys.readouterr().out
    assert "% of 312 TFLOP/s" in text and "without a GPU, as here (Some CPU, 2 threads a training): " in text
