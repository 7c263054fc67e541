import dataclasses
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geomix.errors import UserError
from geomix.speech.manifest import (
    Utterance,
    original_id,
    perturbed_samples,
    read_manifest,
    speed_fraction,
    summary,
    write_manifest,
)


def utterances(folder):
    return [
        Utterance("b-1-0001", "b", str(folder / "audio" / "b.flac"), 16_000, 1.0, 'SHE SAID "NO'),
        Utterance("a-1-0000", "a", "/elsewhere/a.flac", 8_001, 1.0, "IT'S 'FINE' , REALLY"),
        Utterance("c-1-0000", "c", str(folder / "audio" / "c.flac"), 20_000, 1.0, '"'),
    ]


def test_quotes_swallow_no_line(tmp_path):
    """lhotse#977: one quote in a table took the following lines with it."""
    path = tmp_path / "manifest" / "train.tsv"
    write_manifest(path, utterances(tmp_path))
    assert read_manifest(path) == sorted(utterances(tmp_path), key=lambda u: u.id)
    assert path.read_text().split("\n")[0] == "id\tspeaker\tpath\tsamples\tspeed\ttext"


def test_a_moved_corpus_folder_keeps_its_manifest(tmp_path):
    write_manifest(tmp_path / "old" / "manifest" / "train.tsv", utterances(tmp_path / "old"))
    shutil.move(tmp_path / "old", tmp_path / "new")
    moved = read_manifest(tmp_path / "new" / "manifest" / "train.tsv")
    assert [u.path for u in moved] == [
        "/elsewhere/a.flac",
        str(tmp_path / "new" / "audio" / "b.flac"),
        str(tmp_path / "new" / "audio" / "c.flac"),
    ]


@settings(deadline=None)
@given(samples=st.integers(1, 2_000), factor=st.sampled_from([0.8, 0.9, 0.95, 1.0, 1.1, 1.25, 1.5]))
def test_lengths_after_perturbation_are_torchaudios(samples, factor):
    from torchaudio.functional import speed

    changed, _ = speed(torch.zeros(samples), 16_000, factor)
    assert perturbed_samples(samples, factor) == len(changed)


def test_speed_copies():
    utterance = Utterance("a-1-0000", "a", "/a.flac", 9_001, 1.0, "A")
    slow = utterance.at_speed(0.9)
    assert slow == Utterance("sp0.9-a-1-0000", "a", "/a.flac", 10_002, 0.9, "A")
    assert utterance.at_speed(1) is utterance
    assert original_id(slow.id) == utterance.id
    with pytest.raises(ValueError, match="already a copy"):
        slow.at_speed(1.1)


@pytest.mark.parametrize("factor", [0, -1, 0.1, 5, 0.91234])
def test_odd_speed_factors_are_refused(factor):
    with pytest.raises(UserError, match="speed factor"):
        speed_fraction(factor)


def test_hash_covers_text_and_audio_and_no_path(tmp_path):
    here = utterances(tmp_path)
    audio = {u.path: u.id for u in here}
    there = [dataclasses.replace(u, path=f"/other/{u.id}.flac") for u in reversed(here)]
    moved = {u.path: u.id for u in there}
    assert summary(here, audio) == summary(there, moved)
    changed_text = [dataclasses.replace(here[0], text="YES"), *here[1:]]
    changed_audio = {**audio, here[0].path: "another"}
    hashes = {summary(here, audio)["hash"], summary(changed_text, audio)["hash"], summary(here, changed_audio)["hash"]}
    assert len(hashes) == 3


def test_summary_counts(tmp_path):
    found = summary(utterances(tmp_path), {u.path: "" for u in utterances(tmp_path)})
    assert (found["utterances"], found["speakers"], found["words"], found["characters"]) == (3, 3, 8, 12 + 20 + 1)
    assert found["seconds"] == pytest.approx(44_001 / 16_000)
    assert found["speed_histogram"] == {"1.0": 3}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("id,speaker\n", "the header is"),
        ("id\tspeaker\tpath\tsamples\tspeed\ttext\na\tb\tc\n", "line 2"),
        ("id\tspeaker\tpath\tsamples\tspeed\ttext\na\tb\tc\tmany\t1.0\tA\n", "line 2"),
    ],
)
def test_a_damaged_manifest_is_named(tmp_path, content, sentence):
    path = tmp_path / "train.tsv"
    path.write_text(content)
    with pytest.raises(UserError, match=sentence) as error:
        read_manifest(path)
    assert str(path) in str(error.value)


def test_a_missing_manifest_and_a_tab_are_named(tmp_path):
    with pytest.raises(UserError, match=r"train\.tsv: no such file"):
        read_manifest(tmp_path / "train.tsv")
    bad = dataclasses.replace(utterances(tmp_path)[0], text="A\tB")
    with pytest.raises(UserError, match="b-1-0001 has a tab"):
        write_manifest(tmp_path / "train.tsv", [bad])
    assert not (tmp_path / "train.tsv").exists()
