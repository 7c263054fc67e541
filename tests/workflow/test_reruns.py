"""What runs again, and what does not: the workflow's own rules on stub scripts, both tracks, gated arms and others.

A dry run of a finished study after one change; the jobs it lists are compared with what is right. `attention`, `grassmann`
(gated) and `no_mixer` on both tracks, two test sets, a gate on ESPnet's attention whose fallback is ESPnet's own model.
"""

import shutil

import pytest

from tests.conftest import ROOT
from tests.workflow.conftest import Project, copy_workflow

pytestmark = pytest.mark.workflow

STUDY = """
run: stub
corpus: {test: {test: [test], other: [dev]}}
study: {arms: [attention, grassmann, no_mixer], tracks: [own, espnet], seeds: [0]}
comparison: {planned: [[grassmann, attention]]}
gate:
  track: espnet
  targets: [{set: test, wer: 60.0, source: a paper}]
  fallback: {track: espnet, arm: e_branchformer, seeds: [0], targets: [{set: test, wer: 50.0, source: a page}]}
"""
FILES = ("--configfile", "config/smoke.yaml", "stub.yaml")
TRACKS, ARMS, SETS = ("own", "espnet"), ("attention", "grassmann", "no_mixer"), ("other", "test")
GATED = ["grassmann"]
# what follows a change anywhere, without a training's name
PAGES = {"compare", "report", "page", "speech"}
GATE = {"measure_anchor", "measure_parity", "parity_gate"}


def train(track, arm):
    return f"{'train' if track == 'own' else 'train_espnet'} {track}/{arm}/0"


def average(track, arm):
    return f"{'average' if track == 'own' else 'average_espnet'} {track}/{arm}/0"


def judged(track, arm, sets=SETS):
    """Decoding and scoring of an arm; ESPnet's own search beside it."""
    rules = ["decode", "score"] + (["decode_espnet", "score_prefix_search"] if track == "espnet" else [])
    return {f"{rule} {track}/{arm}/0/{name}" for rule in rules for name in sets}


def chain(track, arm):
    """Everything of an arm from its training on."""
    return {train(track, arm), average(track, arm), *judged(track, arm)}


def chains(tracks=TRACKS, arms=ARMS):
    return set().union(*(chain(track, arm) for track in tracks for arm in arms))


# the gate's measurement is made again, and with it the gated arms, whose trainings are restored
AGAIN = GATE | chains(arms=GATED)


def stubbed(folder) -> Project:
    project = copy_workflow(folder)
    stub = (ROOT / "tests" / "workflow" / "stub_script.py").read_text()
    for script in project.path("workflow_scripts").glob("*.py"):
        script.write_text(stub)
    project.path("stub.yaml").write_text(STUDY)
    project.path("passes").write_text("attention e_branchformer")
    return project


def ran(project) -> list[str]:
    """What has run since the last look."""
    path = project.path("ran.txt")
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [line.strip() for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    project = stubbed(tmp_path_factory.mktemp("stub") / "project")
    listed = project.plan(*FILES)
    project.snakemake(*FILES, "--cores", "4")
    project.first = (listed, ran(project))
    return project


@pytest.fixture
def study(finished):
    """The finished study; its files are put back after the test."""
    kept = finished.folder.with_name("kept")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(finished.folder, kept)
    yield finished
    shutil.rmtree(finished.folder)
    kept.rename(finished.folder)


def test_a_fresh_dry_run_lists_every_job_and_no_fallback(finished):
    listed, done = finished.first
    assert chains() | GATE <= set(listed)
    assert not any("e_branchformer" in job for job in listed + done)
    assert sum(job.startswith("train") for job in done) == 6 and not any("restored" in job for job in done)


def test_a_second_run_has_nothing_to_do(study):
    assert study.plan(*FILES) == []


@pytest.mark.parametrize(
    ("arguments", "jobs"),
    [
        (["--forcerun", "score"], AGAIN | PAGES | {f"score {t}/{a}/0/{s}" for t in TRACKS for a in ARMS for s in SETS}),
        (["-R", "decode"], AGAIN | PAGES | {f"{r} {t}/{a}/0/{s}" for r in ("decode", "score") for t in TRACKS for a in ARMS for s in SETS}),
        (["-R", "train"], PAGES | chains(["own"])),
        (["-R", "train", "train_espnet"], PAGES | GATE | chains()),
        (["--forcerun", "results/stub/own/grassmann/seed0/record.json"], PAGES | chain("own", "grassmann")),
        (["-R", "compare"], PAGES),
        (["-R", "parity_gate"], {"parity_gate", *PAGES} | chains(arms=GATED)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_is_forced_runs_for_every_arm(study, arguments, jobs):
    assert set(study.plan(*FILES, *arguments)) == jobs


DELETED = {
    # a file of an arm that waits for the gate, of one that does not, and of the gate's own
    "own/grassmann/seed0/record.json": PAGES | chain("own", "grassmann"),
    "espnet/no_mixer/seed0/record.json": PAGES | chain("espnet", "no_mixer"),
    "espnet/attention/seed0/record.json": PAGES | chain("espnet", "attention") | AGAIN,
    "own/no_mixer/seed0/log.jsonl": PAGES | chain("own", "no_mixer"),
    "own/no_mixer/seed0/diagnostics.json": PAGES | chain("own", "no_mixer"),
    "own/grassmann/seed0/hyp/test/text": PAGES | {f"{r} own/grassmann/0/test" for r in ("decode", "score")},
    "espnet/no_mixer/seed0/hyp/other/text": PAGES | {f"{r} espnet/no_mixer/0/other" for r in ("decode", "score")},
    "own/grassmann/seed0/score/test.json": PAGES | {"score own/grassmann/0/test"},
    "own/no_mixer/seed0/score/other.tsv": PAGES | {"score own/no_mixer/0/other"},
    "espnet/no_mixer/seed0/prefix_search/score/test.json": {
        "report",
        "page",
        "speech",
        "score_prefix_search espnet/no_mixer/0/test",
    },
    "tables.md": {"report", "page", "speech"},
    "figures/wer.png": {"report", "page", "speech"},
    "comparisons.json": PAGES,
    "study.json": PAGES | {"describe"},
    "corpus.json": {"check_corpus", "report", "page", "speech"},
    "parity.json": AGAIN - {"measure_anchor"} | PAGES,
    "parity.passed": AGAIN - {"measure_anchor", "measure_parity"} | PAGES,
    # made only for what needs them: nobody trains for days because a quota clean-up took weights
    "own/grassmann/seed0/model.safetensors": set(),
    "own/no_mixer/seed0/averaging.json": set(),
    "espnet/attention/seed0/espnet.pth": set(),
}


@pytest.mark.parametrize("name", DELETED)
def test_what_is_deleted_is_made_again(study, name):
    study.path("results", "stub", name).unlink()
    assert set(study.plan(*FILES)) == DELETED[name]


def test_a_missing_model_is_made_for_what_needs_it(study):
    for name in ("model.safetensors", "hyp/test/text"):
        study.path("results/stub/own/grassmann/seed0", name).unlink()
    jobs = set(study.plan(*FILES))
    assert jobs == PAGES | {average("own", "grassmann"), *judged("own", "grassmann")}


def test_a_file_of_a_gated_arm_is_made_when_asked_for_by_name(study):
    names = [
        f"results/stub/{track}/{arm}/seed0/hyp/test/text" for track in TRACKS for arm in ("attention", "grassmann")
    ]
    for name in names:
        study.path(name).unlink()
    study.snakemake(*FILES, "--cores", "4", *names)
    assert all(study.path(name).exists() for name in names)
    assert not any("trained" in line for line in ran(study))


CHANGED = {
    # text of the overlay -> jobs: neutral keys, then those of one stage after the other
    "training: {threads: 2, log_every: 3, save_minutes: 1, device: cpu, detect_after: 9}": set(),
    "corpus: {expected: {train: {utterances: 48}}}": {"check_corpus", "report", "page", "speech"},
    "corpus: {speed_factors: [1.0]}": PAGES | GATE | chains() | {"describe", "features train", "tokenizer", "normalisation", "espnet_stats", "check_corpus", "prepare_split train", *(f"espnet_data {split}" for split in ("train", "dev", "test", "other"))},
    "features: {dtype: float16}": {"describe", "normalisation", *(f"features {split}" for split in ("train", "dev", "test", "other"))} | PAGES | GATE | chains(),
    "tokenizer: {kind: char}": {"describe", "tokenizer", "espnet_stats", *(f"espnet_data {split}" for split in ("train", "dev", "test", "other"))} | PAGES | GATE | chains(),
    "hypothesis: another": {"describe", *PAGES},
    "references: [{system: a, source: b, wer: {test: 1.0}}]": {"describe", *PAGES},
    "comparison: {resamples: 200}": {"describe", *PAGES},
    "arms: {no_mixer: {unmatched: true}}": {"describe", *PAGES},
    "arms: {no_mixer: {ff_dim: 97}}": {"describe", *PAGES} | chains(arms=["no_mixer"]),
    "arms: {grassmann: {rank: 11}}": {"describe", *PAGES} | chains(arms=GATED),
    "arms: {attention: {heads: 4}}": {"describe", *PAGES} | chains(arms=["attention"]) | AGAIN,
    "training: {warmup: 61}": PAGES | GATE | chains(),
    "training: {epochs: 13}": PAGES | GATE | chains(),
    "training: {keep_best: 2}": PAGES | AGAIN | {average(t, a) for t in TRACKS for a in ARMS} | set().union(*(judged(t, a) for t in TRACKS for a in ARMS)),
    "gate: {targets: [{set: test, wer: 61.0, source: a paper}]}": {"describe", *PAGES} | AGAIN,
    "gate: {mode: record}": {"describe", *PAGES} | AGAIN,
}  # fmt: skip


@pytest.mark.parametrize("overlay", CHANGED)
def test_a_changed_key_runs_what_it_reaches(study, overlay):
    study.path("change.yaml").write_text(overlay)
    jobs = {job for job in study.plan(*FILES, "change.yaml") if job != "agreement"}
    assert jobs == CHANGED[overlay]


def test_a_new_test_set_touches_no_training_and_no_gate(study):
    study.path("change.yaml").write_text("corpus: {test: {more: [test]}}")
    study.path("change.yaml").write_text("corpus: {test: {test: [test], other: [dev], more: [test]}}")
    jobs = set(study.plan(*FILES, "change.yaml"))
    new = set().union(*(judged(track, arm, ["more"]) for track in TRACKS for arm in ARMS))
    prepared = {"prepare_split more", "features more", "espnet_data more", "check_corpus", "describe"}
    assert jobs == new | prepared | PAGES


def test_a_new_seed_runs_the_new_jobs_alone(study):
    study.path("change.yaml").write_text("study: {seeds: [0, 1]}")
    jobs = set(study.plan(*FILES, "change.yaml"))
    assert jobs == {job.replace("/0", "/1") for job in chains()} | PAGES | {"describe"}


def test_a_new_arm_in_a_run_of_its_own_trains_that_arm_alone(study):
    ran(study)
    study.path("change.yaml").write_text(
        "run: mine\narms: {mine: {mixer: pair, rank: 12, offsets: [1, 3]}}\nstudy: {arms: [attention, mine]}\ncomparison: {planned: []}\n"
    )
    study.snakemake(*FILES, "change.yaml", "--cores", "4")
    trainings = [line for line in ran(study) if line.startswith("train")]
    assert sorted(trainings) == [
        "train:restored own/attention/0", "train:trained own/mine/0",
        "train_espnet:restored espnet/attention/0", "train_espnet:trained espnet/mine/0",
    ]  # fmt: skip
    assert study.plan(*FILES) == []


def test_a_second_run_on_the_corpus_keeps_data_of_its_own(study):
    study.path("change.yaml").write_text(
        "run: slower\ncorpus: {speed_factors: [0.9, 1.0]}\nstudy: {tracks: [own]}\ngate: null\n"
    )
    study.snakemake(*FILES, "change.yaml", "--cores", "4")
    done = ran(study)
    assert "prepare_split train" in done and "prepare_split dev" not in done
    assert study.plan(*FILES, "change.yaml") == [] and study.plan(*FILES) == []


def test_a_miss_trains_the_fallback_and_stops_the_gated_arms(tmp_path):
    project = stubbed(tmp_path / "project")
    project.path("passes").write_text("nobody")
    done = project.snakemake(*FILES, "--cores", "4", "--keep-going", check=False)
    jobs = ran(project)
    assert done.returncode == 1
    assert "train_espnet:trained espnet/e_branchformer/0" in jobs and "parity_gate " in [f"{job} " for job in jobs]
    assert not any("grassmann" in job for job in jobs) and "score own/no_mixer/0/test" in jobs

    # recorded, the miss lets them run; nothing that ran is trained again
    project.path("change.yaml").write_text("gate: {mode: record}")
    project.snakemake(*FILES, "change.yaml", "--cores", "4")
    jobs = ran(project)
    assert {job for job in jobs if "trained" in job} == {
        "train:trained own/grassmann/0", "train_espnet:trained espnet/grassmann/0",
    }  # fmt: skip
    assert project.path("results/stub/tables.md").exists()


def test_without_a_gate_nothing_is_measured_and_nothing_waits(tmp_path):
    project = stubbed(tmp_path / "project")
    project.path("change.yaml").write_text("gate: null")
    jobs = set(project.plan(*FILES, "change.yaml"))
    assert chains() <= jobs and not jobs & GATE
    refused = project.snakemake(*FILES, "change.yaml", "--cores", "1", "attention_only", check=False)
    assert refused.returncode and "no gate" in refused.stdout and "Traceback" not in refused.stdout


def test_hypotheses_are_reached_across_the_gate(tmp_path):
    """`--until decode` ends where the gate begins; the target does not."""
    project = stubbed(tmp_path / "project")
    listed = set(project.plan("hypotheses", *FILES))
    assert {f"decode {t}/{a}/0/{s}" for t in TRACKS for a in ARMS for s in SETS} <= listed and "compare" not in listed
