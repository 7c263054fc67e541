"""The studies of a configuration: their names, their trainings' hashes, and which of them a file belongs to."""

from geomix.settings import load, stages
from geomix.settings.instances import studies_of, study_of
from tests.conftest import ROOT


def test_each_study_is_found_by_its_files_and_hashes_its_trainings():
    config = load(ROOT / "config/smoke.yaml", base=ROOT / "config.yaml")
    studies = studies_of(config)
    assert {name: study.kind for name, study in studies.items()} == {"smoke": "speech", "smoke/language": "language"}
    speech, language = studies.values()
    assert study_of(config, "results/smoke/own/attention/seed0/record.json") == speech
    assert study_of(config, "results/smoke/partial/tables.csv") == speech
    assert study_of(config, "results/smoke/language/transformer/seed0/record.json") == language
    assert speech.training("grassmann", 0, "own") == stages.training(config, "grassmann", 0, "own")
    assert language.training("grassmann", 0) == stages.language_training(config["language"], "grassmann", 0)
    assert language.files("record.json")[0] == "results/smoke/language/transformer/seed0/record.json"
    assert speech.files("score/{set}.tsv")[0] == "results/smoke/own/attention/seed0/score/test.tsv"


def test_a_configuration_without_language_arms_has_no_language_study():
    config = load(base=ROOT / "config.yaml")
    assert list(studies_of({**config, "language": {**config["language"], "arms": {}}})) == [config["run"]]
