"""Long recordings in windows, word times on tone bursts, and the forms of output read by other programs."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch import nn

from geomix.errors import UserError
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.speech import subtitles
from geomix.speech.alignment import Word
from geomix.speech.audio import decode, mono_blocks, resampled
from geomix.speech.decoding import greedy_decode
from geomix.speech.features import log_mel
from geomix.speech.tokenizer import Tokenizer, train_tokenizer
from geomix.speech.transcription import Transcript, Windows, transcribe

CPU = torch.device("cpu")
SCLITE = shutil.which("sclite") or "/usr/lib/sctk/bin/sclite"
BURSTS = [("LOW", 0.50, 0.90), ("HIGH", 1.33, 1.61), ("LOW", 2.005, 2.405), ("MID", 3.0, 3.2)]
TONES = {"LOW": 300.0, "MID": 1000.0, "HIGH": 3000.0}


def bursts(seconds=4.0, rate=16_000):
    """Tones at the times of BURSTS."""
    wave = np.zeros(int(seconds * rate), np.float32)
    for word, start, end in BURSTS:
        part = slice(int(start * rate), int(end * rate))
        wave[part] = 0.3 * np.sin(2 * np.pi * TONES[word] * np.arange(part.stop - part.start) / rate)
    return wave


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["LOW MID HIGH"], folder, "word")
    return Tokenizer.load(folder)


class Ear(nn.Module):
    """Names the tone that most of the log-mel frames of an encoder frame's reach hold: blank where that is silence."""

    def __init__(self, tokenizer, subsampling):
        super().__init__()
        self.config = ConformerConfig(vocab=tokenizer.size, subsampling=subsampling)
        self.net = ConformerCTC.subsampled_lengths
        self.labels = {tokenizer.encode(word)[0]: tone for word, tone in TONES.items()}

    def subsampled_lengths(self, lengths):
        return self.net(self, lengths)

    def log_probs(self, features, lengths):
        loud = {label: self._band(features, tone) for label, tone in self.labels.items()}
        heard = torch.zeros(features.shape[1], dtype=torch.int64)
        for label, power in loud.items():
            heard[(power > -2) & (power == torch.stack(list(loud.values())).amax(0))] = label
        reach = 2 * self.config.subsampling - 1
        frames = heard.unfold(0, reach, self.config.subsampling).mode(-1).values
        return nn.functional.one_hot(frames, self.config.vocab)[None].float().mul(20).log_softmax(-1), (
            self.subsampled_lengths(lengths)
        )

    def _band(self, features, tone):
        mel = log_mel(np.sin(2 * np.pi * tone * np.arange(4000) / 16_000).astype(np.float32))[10].argmax()
        return features[0, :, mel]


@pytest.mark.parametrize("subsampling", [4, 8])
@pytest.mark.parametrize("max_seconds", [30.0, 2.0])
def test_times_are_within_an_encoder_frame_of_tone_bursts(tokenizer, subsampling, max_seconds):
    blocks = np.split(bursts(), [1000, 1001, 40_000])
    found = transcribe(Ear(tokenizer, subsampling), tokenizer, "bursts", blocks, max_seconds=max_seconds, device=CPU)
    assert found.text == "LOW HIGH LOW MID" and found.seconds == 4.0
    assert (found.windows > 1) == (max_seconds < 4)
    frame = subsampling / 100
    for word, (_, start, end) in zip(found.words, BURSTS, strict=True):
        assert abs(word.start - start) <= frame and abs(word.end - end) <= frame
        assert word.confidence > 0.99


@pytest.mark.parametrize("samples", [3000, 16_000, 31_999, 32_000, 47_999, 48_000, 48_001, 48_160, 100_003])
def test_windows_hold_the_features_of_the_whole_recording(samples):
    wave = (0.1 * np.random.default_rng(samples).normal(size=samples)).astype(np.float32)
    whole = log_mel(wave)
    reached = 0
    for start, features in Windows(np.array_split(wave, 7), 200, 160):
        assert start in (0, reached - 40) and len(features) <= 200
        np.testing.assert_allclose(features, whole[start : start + len(features)], atol=2e-5)
        reached = start + len(features)
    assert reached == len(whole)


def test_a_model_that_hears_less_than_half_an_overlap_says_the_same_in_windows(tokenizer):
    """What differs between windows and the whole is then nothing but the joining."""
    torch.manual_seed(1)
    network = ConformerCTC(
        ConformerConfig(vocab=tokenizer.size, blocks=2, width=16, ff_dim=16, kernel=5, mixer={"mixer": "none"})
    ).eval()
    network.set_normalisation(np.full(80, -8.0), np.full(80, 3.0))
    nn.init.normal_(network.ctc.weight, std=3.0)
    for seed in range(4):
        wave = (0.1 * np.random.default_rng(seed).normal(size=16_000 * 20 + 777)).astype(np.float32)
        whole = greedy_decode(network, {"a": log_mel(wave)}, tokenizer, device=CPU)["a"]
        found = transcribe(network, tokenizer, "a", [wave], max_seconds=4.0, device=CPU)
        assert found.text == whole and found.windows > 5 and len(found.words) > 10


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000])
def test_resampling_by_blocks_leaves_no_seam(tmp_path, monkeypatch, rate):
    monkeypatch.setattr("geomix.speech.audio._BLOCK", 5000)
    wave = 0.2 * np.random.default_rng(0).normal(size=(23_456, 2))
    soundfile.write(tmp_path / "a.wav", wave, rate)
    blocks = list(mono_blocks(tmp_path / "a.wav", resample=True))
    whole = resampled(decode(tmp_path / "a.wav", any_form=True))
    assert len(blocks) > 3
    np.testing.assert_allclose(np.concatenate(blocks), whole, atol=1e-6)


@pytest.mark.parametrize(
    ("samples", "sentence"), [(0, "a: is empty"), (256, "a: holds 256 samples"), (700, "a: is shorter than one output")]
)
def test_empty_and_short_recordings_are_sentences(tokenizer, samples, sentence):
    with pytest.raises(UserError, match=sentence):
        transcribe(Ear(tokenizer, 4), tokenizer, "a", [np.zeros(samples, np.float32)], device=CPU)


WORDS = (
    Word("A&B", 0.09, 0.5, 0.9),
    Word("<unk>", 0.61, 1.0, 0.5),
    Word("ÉTÉ", 59.9996, 60.25, 1.0),
    *(Word("ABCDEFGHIJ", 3700 + n / 2, 3700.4 + n / 2, 0.25) for n in range(30)),
)


@pytest.mark.parametrize("form", ["vtt", "srt"])
def test_subtitles_are_read_by_a_library(tmp_path, form):
    import webvtt

    file = tmp_path / f"a.{form}"
    transcript = Transcript("a.wav", 3800.0, WORDS)
    file.write_text({"vtt": subtitles.as_vtt, "srt": subtitles.as_srt}[form](transcript), encoding="utf-8")
    cues = list(webvtt.read(file) if form == "vtt" else webvtt.from_srt(file))
    back = str.maketrans("‹›", "<>") if form == "srt" else {}
    plain = lambda text: text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">").translate(back)
    assert [plain(cue.text) for cue in cues[:2]] == ["A&B <unk>", "ÉTÉ"]
    assert " ".join(plain(cue.text) for cue in cues) == transcript.text
    assert [(c.start, c.end) for c in cues[:2]] == [("00:00:00.090", "00:00:01.000"), ("00:01:00.000", "00:01:00.250")]
    assert cues[2].start == "01:01:40.000" and all(c.end_in_seconds - c.start_in_seconds <= 7 for c in cues)
    assert all(len(c.text) <= 84 for c in cues) and len(cues) > 4
    if form == "vtt":
        assert cues[0].raw_text == "<00:00:00.090>A&amp;B <00:00:00.610>&lt;unk&gt;"


def test_sclite_scores_a_ctm(tmp_path):
    if not Path(SCLITE).exists():
        pytest.skip("no sclite: install the Debian package sctk")
    words = [Word(word, start, end, 0.75) for word, start, end in BURSTS]
    (tmp_path / "a.ctm").write_text(subtitles.as_ctm(Transcript("x/a b.wav", 4.0, tuple(words)), "a b"))
    (tmp_path / "a.stm").write_text("a_b 1 ann 0.0 1.7 LOW HIGH\na_b 1 ann 1.7 4.0 LOW LOW MID\n")
    command = [SCLITE, "-r", "a.stm", "stm", "-h", "a.ctm", "ctm", "-o", "pralign", "stdout"]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    scores = [line.split(")")[1].split() for line in out.splitlines() if line.startswith("Scores:")]
    assert scores == [["2", "0", "0", "0"], ["2", "0", "1", "0"]]  # correct, substituted, deleted, inserted
