"""The DAG of the full study, and what a wrong configuration does: no job runs in these tests."""

from collections import Counter

import pytest


def test_the_full_study_lists_every_job(project):
    jobs = Counter(job.split()[0] for job in project.plan())
    trainings, sets = 4 * 3, 4  # arms and seeds; evaluation sets
    for rule in ("train", "average", "train_espnet", "average_espnet"):
        assert jobs[rule] == trainings, rule  # the gate's fallback is trained only after a miss
    for rule in ("decode_espnet", "score_prefix_search"):
        assert jobs[rule] == trainings * sets, rule
    assert jobs["decode"] == jobs["score"] == 2 * trainings * sets and not jobs["decode_anchor"]
    assert jobs["prepare_split"] == jobs["espnet_data"] == 6  # train, dev, four evaluation sets
    assert jobs["features"] == 3 + 1 + 4  # train at three speeds, dev, four evaluation sets
    once = (
        "check_corpus", "tokenizer", "normalisation", "measure_anchor", "measure_parity", "parity_gate", "compare", "report",
        "agreement", "page",
    )  # fmt: skip
    for rule in once:
        assert jobs[rule] == 1, rule


def test_downloads_are_jobs_only_when_asked_for(project):
    assert not any(job.startswith("download") for job in project.plan())
    project.edit("config.yaml", "download: false", "download: true")
    assert Counter(job.split()[0] for job in project.plan())["download_subset"] == 5


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{blocks: 15", "{blokcs: 15", ["model", "blokcs"]),
        ("training: {epochs: 70", "training: {optimizer: adma, epochs: 70", ["training.optimizer", "adma"]),
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


FURTHER = """STUDIES = studies_of(config)
from geomix.settings.instances import LanguageInstance, SpeechInstance
text = {**STUDIES["smoke/language"].config, "gate": None}
speech = {**config, "study": {**config["study"], "arms": ["attention", "grassmann"]}}
STUDIES["more/text"] = LanguageInstance("more/text", "_more_text", text)
STUDIES["more/speech"] = SpeechInstance("more/speech", "_more_speech", speech)
"""


def test_further_studies_have_all_rules_of_their_kind(project):
    """Two more studies, given by their settings alone: from the data, which they share, to pages of their own."""
    project.edit("rules/common.smk", "STUDIES = studies_of(config)\n", FURTHER)
    pages = [f"results/{name}/tables.md" for name in ("more/text", "more/speech", "smoke")]
    jobs = Counter(job.split()[0] for job in project.plan("--configfile", "config/smoke.yaml", "--", *pages))
    once = ["prepare_language", "tokenizer", "check_corpus", "normalisation", "parity_gate", "parity_gate_more_speech"]
    for rule in ("describe", "compare", "report"):
        once += [rule, f"{rule}_more_text", f"{rule}_more_speech"]
    assert {rule: jobs[rule] for rule in once} == dict.fromkeys(once, 1)
    assert jobs["train"] == jobs["average"] == jobs["decode"] == jobs["score"] == 4 + 2
    assert jobs["train_language"] == 4 and "parity_gate_more_text" not in jobs


def test_a_key_that_stands_twice_in_an_overlay_is_refused(project):
    project.path("twice.yaml").write_text("training: {epochs: 3}\nrun: mine\ntraining: {warmup: 9}\n")
    done = project.snakemake("--dry-run", "--configfile", "config/smoke.yaml", "twice.yaml", check=False)
    assert done.returncode != 0 and "Traceback" not in done.stdout
    assert "twice.yaml: line 3 has the key 'training' a second time: leave one out" in done.stdout
