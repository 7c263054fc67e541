"""The run record: read and written, old ones too; and its view of the code: its commit, and what makes it dirty."""

import subprocess
from pathlib import Path

import pytest

from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.training.record import LanguagePart, RunRecord, SpeechPart, code_version, package_versions

PUBLISHED = Path(__file__).resolve().parents[2] / "results/published"
RECORDS = sorted(path for run in ("an4", "wikitext2") for path in (PUBLISHED / run).rglob("record.json"))


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_dirty_looks_at_code_alone(tmp_path):
    for name in ("src/a.py", "results/an4/tables.csv", "config.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    clean = code_version(tmp_path)
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "results/an4/tables.csv").write_text("2")
    assert code_version(tmp_path) == clean
    (tmp_path / "src/a.py").write_text("2")
    assert code_version(tmp_path) == {**clean, "dirty": True}


def test_no_repository_is_said_and_not_guessed(tmp_path):
    assert code_version(tmp_path / "nowhere") == {"commit": None, "dirty": None}


def test_package_versions_are_those_installed():
    import torch

    versions = package_versions()
    assert versions["torch"] == torch.__version__.split("+")[0]
    assert {"python", "numpy", "geomix"} <= set(versions)


def test_every_published_record_is_read_and_written_to_the_same_bytes(tmp_path):
    assert len(RECORDS) == 28
    for path in RECORDS:
        record = RunRecord.read(path)
        assert isinstance(record.domain, LanguagePart if "wikitext2" in path.parts else SpeechPart)
        record.write(tmp_path / "record.json")
        assert (tmp_path / "record.json").read_bytes() == path.read_bytes(), path


def test_a_damaged_record_ends_in_a_sentence_and_a_later_one_is_read(tmp_path):
    values, path = read_json(RECORDS[0]), tmp_path / "record.json"
    write_json(path, {**values, "a key of a later version": 1})
    assert RunRecord.read(path) == RunRecord.read(RECORDS[0])
    for change, said in (
        ({"updates": "many"}, "updates: Input should be a valid integer"),
        ({}, "mfu: Field required"),
    ):
        broken = {key: value for key, value in values.items() if change or key != "mfu"} | change
        write_json(path, broken)
        with pytest.raises(UserError, match=rf"record.json: {said}.*: remove it and run the step that makes it again"):
            RunRecord.read(path)
