"""The reader of run folders, on the published runs of both studies and on files that are damaged."""

import subprocess
import sys
from pathlib import Path

import pytest

from geomix.errors import UserError
from geomix.files import read_json, write_json, write_text
from geomix.training.results import Study, studies_in
from tests.report.made_up import make_study, make_training

PUBLISHED = Path("results/published")


def test_published_runs_of_both_studies_are_read():
    speech, language = Study.read(PUBLISHED / "an4"), Study.read(PUBLISHED / "wikitext2/language")
    assert (speech.metric, speech.tracks, speech.sets, len(speech.trainings)) == (
        "wer",
        ["own", "espnet"],
        ["test"],
        16,
    )
    assert (language.metric, language.sets, language.test_sets) == ("perplexity", ["valid", "test"], ["test"])
    assert speech.seeds("espnet") == [0] and speech.seeds("own") == [0, 1, 2]
    for study in (speech, language):
        for trained in study.trainings:
            raw = read_json(trained.folder / "record.json")
            assert trained.record.subject.parameters == raw["parameters"] and trained.lines("epoch")
            pair = study.settings["arms"][trained.arm]["mixer"] == "pair"
            assert bool(trained.diagnostics.end) == bool(trained.diagnostics.start) == pair
    assert speech.trainings[0].missing(speech.sets) == []
    raw = read_json(PUBLISHED / "wikitext2/language/grassmann/seed1/record.json")
    assert language.perplexities("grassmann", "test", "token")[1] == raw["perplexity"]["test"]["token"]
    assert studies_in(PUBLISHED / "wikitext2") == [PUBLISHED / "wikitext2/language"]


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("record.json", '{"parameters": 3}', "record.json: run: Field required"),
        ("log.jsonl", '{"kind": "step"}\n{"kind', "log.jsonl: not a JSON object a line"),
        ("diagnostics.json", '{"start": [{"block": 0}]}', "diagnostics.json: not diagnostics by block"),
        (
            "averaging.json",
            '{"training": "0123"}',
            "averaging.json: its model is of training 0123, the record beside it of",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path, name, text, words):
    make_study(tmp_path)
    make_training(tmp_path, "own", "attention", 0, rate=0.1)
    write_text(tmp_path / "own/attention/seed0" / name, text)
    trained = Study.read(tmp_path).trained("own", "attention", 0)
    with pytest.raises(UserError, match=words):
        assert all((trained.record, trained.log, trained.diagnostics))


def test_a_study_without_a_section_and_a_language_model_without_perplexities_are_named(tmp_path):
    study = make_study(tmp_path)
    make_training(tmp_path, "own", "attention", 0, rate=0.1)
    with pytest.raises(UserError, match="has no 'perplexity'"):
        _ = Study.read(tmp_path).trained("own", "attention", 0).perplexity
    write_json(tmp_path / "study.json", {key: value for key, value in study.items() if key != "gate"})
    with pytest.raises(UserError, match="study.json: has no 'gate'"):
        Study.read(tmp_path)


def test_the_reader_is_light():
    code = "import sys, geomix.training.results; sys.exit(any(m in sys.modules for m in ('numpy', 'torch', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
