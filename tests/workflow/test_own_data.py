"""`geomix init` and then the study, on corpora as people have them: a table each at the first try."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from geomix.cli import main
from geomix.speech.corpora.smoke import WORDS, generate

CUT = "training: {epochs: 2, max_updates: 8, keep_best: 1}\nstudy: {arms: [attention, grassmann]}\n"
SENTENCES = ("нет да", "один два три", "четыре пять", "шесть семь восемь", "девять десять", "да нет да")


@pytest.fixture(scope="module")
def utterances(tmp_path_factory):
    """60 utterances of 10 speakers, as (id, speaker, samples, text): tone bursts for words."""
    folder = tmp_path_factory.mktemp("tones")
    generate({"seed": 3, "speakers": 10, "utterances": 6}, folder / "smoke")
    found = []
    for listing in sorted((folder / "smoke/train").rglob("*.trans.txt")):
        for line in listing.read_text().splitlines():
            i, _, text = line.partition(" ")
            found.append((i, i.split("-")[0], soundfile.read(listing.parent / f"{i}.flac")[0], text))
    assert len(found) == 60
    return found


def first_try(project, folder, out="mine.yaml") -> list[dict[str, str]]:
    """`geomix init`, the check and the study with few updates; returns the rows of the table."""
    for command in (["init", str(folder), "--out", out], ["check", out]):
        done = subprocess.run(
            [sys.executable, "-m", "geomix.cli", *command],
            cwd=project.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    project.path("cut.yaml").write_text(CUT)
    project.snakemake("--configfile", out, "cut.yaml", "--cores", "2")
    run = yaml.safe_load(project.path(out).read_text())["run"]
    with open(project.path("results", run, "tables.csv"), encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.workflow
def test_a_kaldi_folder(project, utterances, tmp_path):
    data = tmp_path / "corpora/digits"
    (data / "audio").mkdir(parents=True)
    for i, _, samples, _ in utterances:
        soundfile.write(data / f"audio/{i}.wav", samples, 16_000)
    (data / "wav.scp").write_text("".join(f"{i} audio/{i}.wav\n" for i, *_ in utterances))
    (data / "text").write_text("".join(f"{i} {text}\n" for i, _, _, text in utterances))
    (data / "utt2spk").write_text("".join(f"{i} {speaker}\n" for i, speaker, *_ in utterances))
    rows = first_try(project, data)
    assert {row["arm"] for row in rows} >= {"attention", "grassmann"}
