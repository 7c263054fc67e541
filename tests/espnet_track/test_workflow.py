"""Both tracks through the workflow, as a person runs them: `--configfile smoke.yaml espnet.yaml`."""

import csv

import pytest

from geomix.files import read_json
from tests.workflow.conftest import copy_workflow

pytestmark = [pytest.mark.espnet, pytest.mark.workflow, pytest.mark.slow]

BOTH = ("--configfile", "config/smoke.yaml", "config/espnet.yaml")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = copy_workflow(tmp_path_factory.mktemp("tracks"))
    # one arm, two epochs: each training, decoding and the checks import ESPnet in a process of its own
    project.edit("config/smoke.yaml", "arms: [attention, grassmann, symmetric, no_mixer]", "arms: [attention]")
    project.edit("config/smoke.yaml", "epochs: 12", "epochs: 2")
    project.edit("config/smoke.yaml", "wer: 60.0", "wer: 1000.0")
    project.snakemake(*BOTH, "--cores", "2")
    return project


def test_the_table_shows_both_tracks_and_their_agreement(project):
    run = project.path("results", "smoke")
    with open(run / "tables.csv", encoding="utf-8", newline="") as file:
        assert [(row["track"], row["arm"]) for row in csv.DictReader(file)] == [
            ("own", "attention"),
            ("espnet", "attention"),
        ]
    records = [read_json(run / track / "attention/seed0/record.json") for track in ("own", "espnet")]
    for key in ("parameters", "updates", "epochs"):
        assert records[0][key] == records[1][key], key
    checks = read_json(run / "agreement.json")["checks"]
    assert checks and all(check["passed"] for check in checks)
    text = (run / "tables.md").read_text(encoding="utf-8")
    for title in ("the same data and weights", "the trained arms", "two ways to decode"):
        assert f"## Tracks: {title}" in text
    assert "18 of 18" in text  # our decoder's texts of the converted weights are ESPnet's


def test_again_there_is_nothing_to_do_and_the_own_track_alone_needs_nothing_of_espnet(project):
    assert project.plan(*BOTH) == []
    own = project.plan("--configfile", "config/smoke.yaml")
    assert not [job for job in own if "espnet" in job or job.startswith("train")]
