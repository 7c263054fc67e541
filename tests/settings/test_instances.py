"""The studies of a configuration: their names, their trainings' hashes, and which of them a file belongs to."""

from geomix.settings import load, stages, training_settings
from geomix.settings.instances import studies_of, study_of
from tests.conftest import ROOT


def test_each_study_is_found_by_its_files_and_hashes_its_trainings():
    config = load(ROOT / "config/smoke.yaml", base=ROOT / "config.yaml")
    studies = studies_of(config)
    assert {name: study.kind for name, study in studies.items()} == {
        "smoke": "speech",
        "smoke/language": "language",
        "smoke_algebra/components": "language",
        "smoke_algebra/architectures": "language",
    }
    speech, language, components, _ = studies.values()
    assert components.files("record.json")[0] == "results/smoke_algebra/components/scalar/seed0/record.json"
    assert study_of(config, "results/smoke/own/attention/seed0/record.json") == speech
    assert study_of(config, "results/smoke/partial/tables.csv") == speech
    assert study_of(config, "results/smoke/language/transformer/seed0/record.json") == language
    assert speech.training("grassmann", 0, "own") == stages.training(config, "grassmann", 0, "own")
    assert language.training("grassmann", 0) == stages.language_training(config["language"], "grassmann", 0)
    assert language.files("record.json")[0] == "results/smoke/language/transformer/seed0/record.json"
    assert speech.files("score/{set}.tsv")[0] == "results/smoke/own/attention/seed0/score/test.tsv"


def test_a_configuration_without_language_arms_has_no_language_study():
    config = load(base=ROOT / "config.yaml")
    without = {**config, "language": {**config["language"], "arms": {}}}
    assert list(studies_of(without)) == [config["run"], "algebra/components", "algebra/architectures"]


def test_phase_3_on_speech_trains_as_the_configuration_does_but_for_what_it_names():
    config = load(ROOT / "config/demo.yaml", base=ROOT / "config.yaml")
    speech = studies_of(config)["demo_algebra/speech"]
    assert speech.trainings == [
        ("own", "wide_scalar", 0),
        ("own", "clifford", 0),
        ("own", "shuffled", 0),
        ("own", "rotors", 0),
    ]
    changed = {key for key, value in speech.config["training"].items() if value != config["training"][key]}
    assert changed == {"epochs", "keep_best", "detect_after"} and speech.gate is None
    settings = training_settings(speech.config, "clifford", 0, "own")
    assert settings["model"]["replaced"]["feed_forward"]["map"] == "clifford"
