"""Utterances joined to long recordings: who says them, in which order, with what between them."""

import numpy as np
import pytest
import soundfile

from geomix.errors import UserError
from geomix.speech.evaluation_set import EvaluationSet
from geomix.speech.features import open_features
from geomix.speech.long_form import PAUSE, groups, joined_set
from geomix.speech.manifest import Utterance, write_manifest


@pytest.fixture
def found(tmp_path):
    """Seven utterances of one speaker and two of another, of 1 to 2 s."""
    generator, utterances = np.random.default_rng(0), []
    for n in range(9):
        samples, speaker = 16_000 + 2000 * n, "ab"[n > 6]
        path = tmp_path / f"{n}.flac"
        soundfile.write(path, 0.1 * generator.normal(size=samples), 16_000)
        utterances.append(Utterance(f"{speaker}-{n}", speaker, str(path), samples, 1.0, f"WORD{n}"))
    write_manifest(tmp_path / "manifest" / "test.tsv", utterances)
    return EvaluationSet("test", tmp_path / "manifest" / "test.tsv", [])


def test_a_group_is_just_long_enough_and_of_one_speaker(found):
    made = [[u.id for u in group] for group in groups(found.utterances, 4.0)]
    # lengths 1, 1.125, 1.25, 1.375, ... with 0.3 s behind each: 4.275, then 5.025; b's 1.875 + 2 reach 4.475
    assert made == [["a-0", "a-1", "a-2"], ["a-3", "a-4", "a-5"], ["b-7", "b-8"]]
    assert list(groups(found.utterances, 20.0)) == []


def test_joined_recordings_hold_the_utterances_with_pauses(found, tmp_path):
    joined = joined_set(found, 4.0, tmp_path / "work")
    assert joined.name == "test-4s" and [u.text for u in joined.utterances] == [
        "WORD0 WORD1 WORD2", "WORD3 WORD4 WORD5", "WORD7 WORD8",
    ]  # fmt: skip
    first = joined.utterances[0]
    samples, rate = soundfile.read(first.path)
    at, pause = 0, int(PAUSE * 16_000)
    for n in range(3):
        part, _ = soundfile.read(tmp_path / f"{n}.flac")
        np.testing.assert_array_equal(samples[at : at + len(part)], part)
        assert 0 < np.abs(samples[at + len(part) : at + len(part) + pause]).max() < 1e-3
        at += len(part) + pause
    assert (rate, len(samples), first.samples) == (16_000, at, at)
    store = open_features(joined.features)
    assert {u.id: u.samples // 160 + 1 for u in joined.utterances} == store.lengths
    with pytest.raises(UserError, match="no speaker says 20 s in all: give shorter lengths to --long-form"):
        joined_set(found, 20.0, tmp_path / "work")
