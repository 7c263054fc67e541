"""A cut of LibriSpeech through every stage with every arm at full width: the path of the full study."""

import csv
import json
import shutil

import pytest

from geomix.speech.scoring import read_text

pytestmark = [pytest.mark.workflow, pytest.mark.slow, pytest.mark.fixture]

ARMS = [
    "attention",
    "grassmann",
    "symmetric",
    "no_mixer",
    "grassmann_causal",
    "grassmann_one_offset",
    "signed",
    "geometric",
]


def test_every_arm_goes_from_flac_to_table_at_full_width(project, data_dir, monkeypatch):
    monkeypatch.setenv("GEOMIX_DATA", str(data_dir))
    try:
        project.snakemake("--configfile", "config/fixture.yaml", "--cores", "2")
        run = project.path("results", "fixture")
        corpus = json.loads((run / "corpus.json").read_text())
        assert {name: split["utterances"] for name, split in corpus["splits"].items()} == {
            "train": 15,
            "dev": 10,
            "test": 35,
        }
        for arm in ARMS:
            folder = run / "own" / arm / "seed0"
            record = json.loads((folder / "record.json").read_text())
            # the full study's counts with 100 output units for 5,000
            full = {"attention": 26_958_472, "no_mixer": 26_945_032, "geometric": 26_025_832}.get(arm, 26_021_992)
            assert record["parameters"] == full - 257 * 4900
            assert record["epochs"] == 2
            assert len(read_text(folder / "hyp" / "test" / "text")) == 35
            assert bool(json.loads((folder / "diagnostics.json").read_text())["end"]) == (
                arm not in ("attention", "no_mixer")
            )
        with open(run / "tables.csv", encoding="utf-8", newline="") as file:
            assert sorted(row["arm"] for row in csv.DictReader(file)) == sorted(ARMS)
    finally:
        shutil.rmtree(project.folder, ignore_errors=True)  # several GB of states
