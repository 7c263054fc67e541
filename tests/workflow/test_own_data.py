"""`geomix init` and then the study, on corpora as people have them: a table each at the first try."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import soundfile
import yaml
from scipy.signal import resample_poly

from geomix.speech.corpora.demo import Synthesiser
from geomix.speech.corpora.smoke import generate

pytestmark = pytest.mark.workflow

CUT = "training: {{epochs: 2, max_updates: 6, keep_best: 1}}\nstudy: {{arms: {arms}}}\n"
HINDI = ("एक दो तीन", "चार पाँच", "हाँ नहीं", "छह सात आठ", "नौ दस हाँ")


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


def first_try(project, folder, arms="[attention]") -> tuple[list[dict[str, str]], dict]:
    """`geomix init`, the check and the study, cut to a few updates; returns the rows of the table and the configuration."""
    for command in (["init", str(folder)], ["check", f"{folder.stem}.yaml"]):
        done = subprocess.run(
            [sys.executable, "-m", "geomix.cli", *command],
            cwd=project.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    project.path("cut.yaml").write_text(CUT.format(arms=arms))
    project.snakemake("--configfile", f"{folder.stem}.yaml", "cut.yaml", "--cores", "2")
    with open(project.path("results", folder.stem, "tables.csv"), encoding="utf-8") as file:
        return list(csv.DictReader(file)), yaml.safe_load(project.path(f"{folder.stem}.yaml").read_text())


def test_a_kaldi_folder(project, utterances, tmp_path):
    data = tmp_path / "corpora/digits"
    (data / "audio").mkdir(parents=True)
    for i, _, samples, _ in utterances:
        soundfile.write(data / f"audio/{i}.wav", samples, 16_000)
    (data / "wav.scp").write_text("".join(f"{i} audio/{i}.wav\n" for i, *_ in utterances))
    (data / "text").write_text("".join(f"{i} {text}\n" for i, _, _, text in utterances))
    (data / "utt2spk").write_text("".join(f"{i} {speaker}\n" for i, speaker, *_ in utterances))
    rows, config = first_try(project, data, "[attention, grassmann]")
    assert {row["arm"] for row in rows} == {"attention", "grassmann"}
    assert config["corpus"]["kind"] == "kaldi" and config["tokenizer"]["kind"] == "word"
    page = project.path("results/digits/tables.md").read_text()
    assert "LibriSpeech" not in page and "Conformer CTC 27.0M" not in page  # nothing of the full study's


def test_a_folder_in_librispeechs_form_of_wav_files(project, utterances, tmp_path):
    for i, speaker, samples, text in utterances[:36]:
        place = tmp_path / "corpora/words/all" / speaker / "1"
        place.mkdir(parents=True, exist_ok=True)
        soundfile.write(place / f"{i}.wav", samples, 16_000)
        with open(place / f"{speaker}-1.trans.txt", "a") as listing:
            listing.write(f"{i} {text}\n")
    rows, config = first_try(project, tmp_path / "corpora/words")
    assert [row["set"] for row in rows] == ["test"] and config["corpus"]["kind"] == "folder"
    assert len(config["corpus"]["test"]["test"]["hold_out_speakers"]) == 2


def test_a_manifest_of_mp3_and_ogg(project, utterances, tmp_path):
    folder = tmp_path / "corpora/mixed"
    folder.mkdir(parents=True)
    lines = ["id\tspeaker\tpath\ttext"]
    for number, (i, speaker, samples, text) in enumerate(utterances[:36]):
        name = f"{i}.{('mp3', 'ogg')[number % 2]}"
        if number % 2:
            soundfile.write(folder / name, samples, 16_000)
        else:  # 44.1 kHz, both channels
            both = np.stack([resample_poly(samples, 441, 160)] * 2, 1)
            soundfile.write(folder / name, both, 44_100)
        lines.append(f"{i}\t{speaker}\t{name}\t{text.capitalize()}.")
    (folder / "all.tsv").write_text("\n".join(lines) + "\n")
    rows, config = first_try(project, folder)
    assert len(rows) == 1 and config["corpus"]["resample"] is True and config["corpus"]["normaliser"] == "letters"
    score = json.loads(project.path("results/mixed/own/attention/seed0/score/test.json").read_text())
    assert score["normaliser"] == "letters"


def test_recordings_in_hindi_with_one_file_of_transcripts(project, tmp_path):
    folder, voice, lines = tmp_path / "corpora/hindi", Synthesiser(), []
    for speaker, variant in enumerate(("m1", "f1", "m3", "f2", "m5")):
        (folder / variant).mkdir(parents=True)
        voice.choose(f"hi+{variant}")
        for number, text in enumerate(HINDI):
            samples = voice.say(text, rate=170, pitch=50, liveliness=50, seed=10 * speaker + number + 1)
            soundfile.write(folder / variant / f"{number}.wav", samples, 16_000)
            lines.append(f"{variant}/{number}.wav\t{text}\n")
    (folder / "transcripts.tsv").write_text("".join(lines), encoding="utf-8")
    rows, config = first_try(project, folder)
    assert len(rows) == 1 and config["tokenizer"] == {"kind": "char", "size": None}
    tokens = next(project.folder.glob("data/hindi/train-*/tokenizer/char-all/tokens.txt")).read_text(encoding="utf-8")
    assert "\u093e" in tokens  # the vowel sign of nā, a combining mark
