"""The algebra study's pages of phases 1 and 4: the published ones, byte for byte, from their jobs' records."""

import shutil
from pathlib import Path

import pytest

from geomix.report.algebra import interpretability, representation
from geomix.settings import load

PUBLISHED = Path("results/published/algebra")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The records and remarks of the published run, without its pages; figures are not drawn."""
    for module in (interpretability, representation):
        monkeypatch.setattr(module, "draw", lambda name, folder, make: None)
    for name in ("representation", "interpretability"):
        shutil.copytree(PUBLISHED / name, tmp_path / name, ignore=shutil.ignore_patterns("*.safetensors"))
    shutil.copy(PUBLISHED / "remarks.json", tmp_path)
    return tmp_path


def test_published_pages_are_what_their_records_give(folder):
    representation.build_representation(folder, load("config/algebra.yaml")["algebra"]["representation"])
    interpretability.build_interpretability(folder)
    made = [path.name for path in folder.iterdir() if path.is_file() and path.name != "remarks.json"]
    assert len(made) == 5
    for name in made:
        assert (folder / name).read_bytes() == (PUBLISHED / name).read_bytes(), name
