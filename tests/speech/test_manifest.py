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
    read_lines,
    read_manifest,
    speed_fraction,
    summary,
    unfit_name,
    unfit_text,
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


def test_audio_below_a_given_root_is_relative_to_the_manifest(tmp_path):
    path = tmp_path / "own" / "train-0" / "manifest" / "train.tsv"
    write_manifest(path, utterances(tmp_path / "own"), root=tmp_path / "own")
    assert [line.split("\t")[2] for line in path.read_text().splitlines()[1:]] == [
        "/elsewhere/a.flac",
        "../../audio/b.flac",
        "../../audio/c.flac",
    ]
    assert read_manifest(path) == sorted(utterances(tmp_path / "own"), key=lambda u: u.id)


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_a_byte_order_mark_is_skipped_and_line_ends_are_one(tmp_path, ends):
    """kaldi#3702. A line separator of Unicode within a line is none."""
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbf" + ends.join(["u1 ÉTÉ", "u2 A\u2028B", ""]).encode())
    assert read_lines(path, "") == ["u1 ÉTÉ", "u2 A\u2028B"]
    path.write_bytes(b"\xef\xbb\xbfu1 \xff")
    with pytest.raises(UserError, match="byte 6 is not UTF-8"):
        read_lines(path, "")
    path.write_bytes("u1 A".encode("utf-16"))
    with pytest.raises(UserError, match="byte 0 is not UTF-8"):
        read_lines(path, "")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\)"):
        read_lines(tmp_path, "name a file")


def test_a_prepared_manifest_with_a_mark_is_read(tmp_path):
    write_manifest(tmp_path / "train.tsv", utterances(tmp_path))
    plain = read_manifest(tmp_path / "train.tsv")
    (tmp_path / "train.tsv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "train.tsv").read_bytes())
    assert read_manifest(tmp_path / "train.tsv") == plain


def test_names_that_no_table_can_carry():
    for name in ("", "a b", "a\tb", "a\u00a0b", "a\u2028b", "a/b", "a\x00", "a\x1b", "\ufeffa", "a\u200b", "x" * 201):
        assert unfit_name(name), repr(name)
    for name in ("a-1-0000", "Zoë", "张", "a.b_c(1)", "x" * 200):
        assert unfit_name(name) is None


def test_texts_that_no_tokenizer_gives_back():
    for text in (
        "A <unk> B",
        "A<unk>",
        "<s>",
        "A </s>",
        "<blank> A",
        "<sos/eos>",
        "A\u2581B",
        "A\x00",
        "\ufeffA",
        "A\x1bB",
    ):
        assert unfit_text(text), repr(text)
    for text in ('IT\'S "FINE"', "<noise> A", "हिन्दी", "می\u200cخواهم", "A_B", "<UNK>"):
        assert unfit_text(text) is None
