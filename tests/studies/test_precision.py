"""What a plan says of the contrasts that a study will be able to show."""

import shutil

import pytest

from geomix.files import read_json, write_json
from geomix.settings import load
from geomix.studies.precision import DEFAULT, expected_precision
from tests.conftest import ROOT
from tests.report.made_up import make_run


@pytest.fixture
def librispeech():
    return load(base=ROOT / "config.yaml")


def test_without_a_recorded_run_components_are_assumed(librispeech, tmp_path):
    clean, other = expected_precision(librispeech, tmp_path)
    assert (clean.set, clean.speakers, clean.seeds, other.speakers) == ("test-clean", 40, 3, 33)
    assert "an assumption" in clean.basis
    error, df = DEFAULT.precision(3, 40)
    assert 2.8 * error < clean.now[0] < 4.5 * error and df > 2
    assert clean.more_seeds[0] < clean.now[0] and clean.more_speakers[0] < clean.now[0]


def test_a_recorded_run_of_the_corpus_gives_its_components(librispeech, tmp_path):
    """Of two runs the one whose WER is nearer to the gate's target."""
    for name, seeds in (("one", (0, 1)), ("broken", (0, 1))):
        make_run(tmp_path / "results" / name, arms=("attention", "grassmann"), seeds=seeds)
    shutil.rmtree(tmp_path / "results/broken/own/attention")
    librispeech["corpus"]["name"], librispeech["corpus"]["test"] = "words", ["test"]
    librispeech["corpus"]["kind"] = "folder"
    assert expected_precision(librispeech, tmp_path) == []  # nobody knows its speakers before it is prepared
    librispeech["corpus"]["kind"], librispeech["corpus"]["test"] = "librispeech", ["test-clean"]
    assert "an assumption" in expected_precision(librispeech, tmp_path)[0].basis  # that run has no such set
    run = tmp_path / "results" / "one"
    study = read_json(run / "study.json")
    study["corpus"]["test"] = ["dev", "test-clean"]
    write_json(run / "study.json", study)
    for path in run.glob("own/*/*/score/test.*"):
        path.rename(path.with_name(path.name.replace("test", "test-clean")))
    (found,) = expected_precision(librispeech, tmp_path)
    assert found.basis.startswith(str(run)) and "WER" in found.basis


def test_one_seed_shows_nothing(librispeech, tmp_path):
    librispeech["study"]["seeds"] = [0]
    clean, _ = expected_precision(librispeech, tmp_path)
    assert clean.now[0] != clean.now[0] and clean.more_seeds[0] > 0
