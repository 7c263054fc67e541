"""Snakemake's own conventions: other folders, what is missing said first, and what its linter says."""

import re

import pytest

from tests.conftest import ROOT
from tests.workflow.conftest import Project

pytestmark = pytest.mark.workflow
SMOKE = ROOT / "config/smoke.yaml"

# what `snakemake --lint` may say here, and why it stays
DECLARED = {
    "Specify a conda environment or container for each rule.": "the environment is pip's, pinned in requirements.txt",
    "Mixed rules and functions in same snakefile.": "a function of one stage stands beside its rules",
    "No log directive defined": "a target that only says what its configuration lacks",
    "is a prefix of input or output file but hardcoded": "a run's name is part of its paths",
}


def test_the_workflow_runs_from_another_folder(tmp_path):
    done = Project(tmp_path).snakemake(
        "-s", ROOT / "Snakefile", "--configfile", SMOKE, "--cores", "1", "generate_corpus"
    )
    assert "profiles/default" in done.stdout
    assert list(tmp_path.glob("data/smoke/audio-*/settings.json"))


def test_the_workflow_runs_into_another_folder(tmp_path):
    Project(ROOT).snakemake(
        "--directory", tmp_path, "--configfile", "config/smoke.yaml", "--cores", "1", "generate_corpus"
    )
    assert list(tmp_path.glob("data/smoke/audio-*/settings.json"))


def test_a_missing_espnet_is_told_before_the_first_job(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMIX_ESPNET_PYTHON", "/none")
    overlays = ("--configfile", SMOKE, ROOT / "config/espnet.yaml", "--cores", "1")
    done = Project(tmp_path).snakemake("-s", ROOT / "Snakefile", *overlays, check=False)
    assert done.returncode and "/none: the track espnet needs ESPnet 202611, which is not installed" in done.stdout
    assert not (tmp_path / "data").exists()


def test_the_linter_says_nothing_but_what_is_declared():
    said = Project(ROOT).snakemake("--configfile", "config/smoke.yaml", "--lint", check=False).stdout
    titles = set(re.findall(r"^ +\* (.*)$", said, re.MULTILINE))
    assert titles, said
    assert [title for title in titles if not any(known in title for known in DECLARED)] == []
