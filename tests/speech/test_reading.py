"""What a corpus may hold beside plain FLAC: every format, segments, commands, other rates, other texts; against numpy and soundfile."""

import numpy as np
import pytest
import soundfile

from geomix.errors import UserError
from geomix.speech.audio import Sound, read_audio, resampled
from geomix.speech.corpora import prepare_split, stale_sources
from geomix.speech.manifest import read_manifest
from tests.speech.corpus_builders import tone, write_folder

RATE = 16_000


@pytest.fixture
def kaldi(tmp_path):
    """A Kaldi folder whose one recording of 4 s holds four utterances of two speakers."""
    data = tmp_path / "kaldi/train"
    data.mkdir(parents=True)
    soundfile.write(tmp_path / "long.wav", tone(4.0), RATE)
    (data / "wav.scp").write_text(f"long {tmp_path}/long.wav\n")
    (data / "text").write_text("".join(f"u{i} WORD {'ABCD'[i]}\n" for i in range(4)))
    (data / "utt2spk").write_text("".join(f"u{i} s{i % 2}\n" for i in range(4)))
    (data / "segments").write_text("u0 long 0 1\nu1 long 1.5 2.25\nu2 long 2.5 4.3\nu3 long 3 -1\n")
    return data


def corpus_of(path, kind="kaldi", **keys):
    bounds = {"speed_factors": [1.0], "min_seconds": 0.1, "max_seconds": 30.0}
    sets = {"train": ["train"], "dev": ["train"], "test": ["test"]}
    return {"name": "own", "kind": kind, "path": str(path), **sets, **bounds, **keys}


def prepared(corpus, folder):
    """Utterances by id of the prepared split train."""
    prepare_split(corpus, "train", folder, threads=1)
    return {u.id: u for u in read_manifest(folder / "manifest/train.tsv")}


def test_segments_are_cut_out_of_their_recording(kaldi, tmp_path):
    found = prepared(corpus_of(kaldi.parent), tmp_path / "out")
    whole = tone(4.0)
    for i, (begin, end) in {"u0": (0, 1), "u1": (1.5, 2.25), "u2": (2.5, 4), "u3": (3, 4)}.items():
        expected = whole[int(begin * RATE) : int(end * RATE)]
        assert found[i].samples == len(expected) and np.array_equal(read_audio(found[i].path) * 32_768, expected)
        assert found[i].path == str(tmp_path / f"out/audio/{i}.flac")
    assert stale_sources(tmp_path / "out") == []
    soundfile.write(tmp_path / "long.wav", tone(3.9), RATE)
    assert len(stale_sources(tmp_path / "out")) == 1


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("u0 long 1 0.5", "u0 has 'long 1 0.5'"),
        ("u0 long 5 6", "u0 lies at 5 to 6 s"),
        ("u0 long 3 4.6", "u0 lies at 3 to 4.6 s of .*, which has 4 s"),
        ("u0 short 0 1", "wav.scp: no line for recording short of utterance u0"),
        ("u0 long nan 1", "u0 has 'long nan 1'"),
        ("other long 0 1", "text: no line for utterance other"),
    ],
)
def test_segments_that_lead_nowhere_are_refused(kaldi, tmp_path, line, sentence):
    lines = (kaldi / "segments").read_text().splitlines()
    (kaldi / "segments").write_text("\n".join([line, *lines[1:]]) + "\n")
    with pytest.raises(UserError, match=sentence):
        prepared(corpus_of(kaldi.parent), tmp_path / "out")


def test_commands_run_only_where_they_are_allowed(kaldi, tmp_path):
    (kaldi / "wav.scp").write_text("long cat long.wav |\n")
    with pytest.raises(UserError, match="is the command 'cat long.wav |'.*corpus.allow_pipes"):
        prepared(corpus_of(kaldi.parent), tmp_path / "out")
    allowed = corpus_of(kaldi.parent, allow_pipes=True, audio_root=str(tmp_path))
    assert np.array_equal(read_audio(prepared(allowed, tmp_path / "out")["u3"].path) * 32_768, tone(4.0)[3 * RATE :])
    (kaldi / "wav.scp").write_text("long echo no such file >&2; false |\n")
    with pytest.raises(UserError, match="ended with status 1 and 0 bytes .no such file.: mend it in wav.scp"):
        prepared(allowed, tmp_path / "out")


def test_without_utt2spk_each_utterance_is_a_speaker_and_it_is_said(kaldi, tmp_path, capsys):
    (kaldi / "utt2spk").unlink()
    found = prepared(corpus_of(kaldi.parent), tmp_path / "out")
    assert [u.speaker for u in found.values()] == list(found)
    assert "utt2spk: is not there, so each utterance is a speaker of its own" in capsys.readouterr().err


def test_every_kind_of_file_may_lie_in_a_folder(tmp_path):
    """The formats that libsndfile writes; those whose length nothing checks are warned of."""
    split = tmp_path / "corpus/train/ann/1"
    split.mkdir(parents=True)
    forms = {
        "wav": "WAV",
        "mp3": "MP3",
        "ogg": "OGG",
        "aiff": "AIFF",
        "au": "AU",
        "caf": "CAF",
        "w64": "W64",
        "voc": "VOC",
    }
    for number, (suffix, form) in enumerate(forms.items()):
        soundfile.write(split / f"ann-1-{number:04d}.{suffix}", tone(0.5), RATE, format=form)
    (split / "ann-1.trans.txt").write_text("".join(f"ann-1-{i:04d} YES\n" for i in range(len(forms))))
    found = prepared(corpus_of(tmp_path / "corpus", "folder"), tmp_path / "out")
    assert {u.samples for u in found.values()} == {8000} and len(found) == len(forms)
    soundfile.write(split / "ann-1-0000.flac", tone(0.5), RATE)
    with pytest.raises(UserError, match="0000.wav: .*0000.flac has the same name"):
        prepared(corpus_of(tmp_path / "corpus", "folder"), tmp_path / "out")


def test_other_rates_and_stereo_are_converted_where_that_is_asked_for(tmp_path):
    from geomix.files import read_json

    folder = write_folder(tmp_path / "corpus/train", {"ann-1-0000": "YES", "ann-1-0001": "NO"})
    both = np.stack([tone(1.0, rate=44_100), np.zeros(44_100, np.int16)], 1)
    soundfile.write(folder / "ann/1/ann-1-0001.flac", both, 44_100)
    with pytest.raises(UserError, match="44100 Hz: .*or set corpus.resample: true"):
        prepared(corpus_of(tmp_path / "corpus", "folder"), tmp_path / "out")
    found = prepared(corpus_of(tmp_path / "corpus", "folder", resample=True), tmp_path / "out")
    assert found["ann-1-0000"].path == str(folder / "ann/1/ann-1-0000.flac")  # as it is: nothing to convert
    converted = read_audio(found["ann-1-0001"].path)
    time = np.arange(RATE) / RATE
    expected = 0.5 * 8000 / 32_768 * np.sin(2 * np.pi * 440 * time)
    assert len(converted) == RATE and np.abs(converted - expected)[200:-200].max() < 0.005
    said = read_json(tmp_path / "out/split.json")["resampled"]
    assert said["utterances"] == {"44100 Hz, 2 channels": 1} and said["with"].startswith("torchaudio ")


@pytest.mark.parametrize("rate", [8_000, 22_050, 48_000])
def test_the_resampler_keeps_a_tone_and_drops_what_16_khz_cannot_hold(rate):
    time = np.arange(rate) / rate
    low = np.sin(2 * np.pi * 1000 * time)
    high = np.sin(2 * np.pi * 9500 * time) if rate > 20_000 else 0
    out = resampled(Sound((low + high).astype(np.float32), rate, "FLOAT"))
    expected = np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE)
    assert len(out) == RATE and np.abs(out - expected)[800:-800].max() < 2e-3


@pytest.mark.parametrize("name, text", [("none", "Yes, Sir!"), ("lower", "yes, sir!"), ("letters", "yes sir")])
def test_transcripts_are_normalised_by_name(tmp_path, name, text):
    write_folder(tmp_path / "corpus/train", {"ann-1-0000": "Yes, Sir!"})
    found = prepared(corpus_of(tmp_path / "corpus", "folder", normaliser=name), tmp_path / "out")
    assert found["ann-1-0000"].text == text


def test_a_transcript_of_which_a_normaliser_leaves_nothing_is_refused(tmp_path):
    write_folder(tmp_path / "corpus/train", {"ann-1-0000": "?!"})
    with pytest.raises(UserError, match=r"the normaliser letters leaves nothing of the transcript '\?!' of ann-1-0000"):
        prepared(corpus_of(tmp_path / "corpus", "folder", normaliser="letters"), tmp_path / "out")
