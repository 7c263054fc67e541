"""`geomix transcribe`: audio in, words out in five formats; folders, other rates, bad files in a sentence."""

import json
import shutil

import numpy as np
import pytest
import soundfile
import torch

from geomix.cli import main
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.models.saved import load_model, save_model
from geomix.speech.decoding import collapse
from geomix.speech.features import log_mel
from geomix.speech.tokenizer import Tokenizer, train_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model folder; the network is untrained, with a head that makes it say something."""
    folder = tmp_path_factory.mktemp("model")
    train_tokenizer(["ONE TWO THREE FOUR FIVE SIX"], folder, "word")
    torch.manual_seed(0)
    network = ConformerCTC(
        ConformerConfig(vocab=Tokenizer.load(folder).size, blocks=1, width=8, ff_dim=8, kernel=3, heads=2)
    )
    network.set_normalisation(np.full(80, -10.0), np.full(80, 3.0))
    torch.nn.init.normal_(network.ctc.weight, std=3.0)
    save_model(network, folder)
    return folder


def noise(seconds, seed=0):
    return (0.1 * np.random.default_rng(seed).normal(size=int(16_000 * seconds))).astype(np.float32)


def write(path, samples, rate=16_000, **form):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **form)
    return str(path)


def transcribe(model, *arguments):
    main(["transcribe", str(model), *map(str, arguments), "--device", "cpu"])


def test_text_is_that_of_the_models_most_probable_path(model, tmp_path, capsys):
    paths = [write(tmp_path / "0.flac", noise(1.0)), write(tmp_path / "1.wav", noise(2.5, 1))]
    transcribe(model, *paths)
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines] == paths
    network, tokenizer = load_model(model), Tokenizer.load(model)
    for path, text in lines:
        waveform, _ = soundfile.read(path, dtype="float32")
        features = torch.from_numpy(log_mel(waveform))[None]
        with torch.no_grad():
            path_ids = network.log_probs(features, torch.tensor([features.shape[1]]))[0][0].argmax(-1).tolist()
        assert text == tokenizer.decode(collapse(path_ids))
    assert any(text for _, text in lines)


def test_folders_are_searched_and_each_recording_gets_a_file(model, tmp_path, capsys):
    for name in ("b.wav", "sub/a.flac", "sub/c.mp3", "sub/notes.txt"):
        if name.endswith(".txt"):
            (tmp_path / "in" / name).write_text("no recording")
        else:
            write(tmp_path / "in" / name, noise(1))
    transcribe(model, tmp_path / "in", "--format", "srt", "--out", tmp_path / "out")
    found = sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert found == ["b.srt", "sub/a.srt", "sub/c.srt"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as ended:
        transcribe(model, tmp_path / "empty", tmp_path / "in" / "b.wav")
    out = capsys.readouterr()
    assert ended.value.code == 1 and "empty: no recordings in this folder" in out.err and "b.wav\t" in out.out


def test_json_has_the_words_with_their_times(model, tmp_path, capsys):
    transcribe(model, write(tmp_path / "a.wav", noise(3)), "--format", "json")
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"] == 3.0 and found["text"] == " ".join(w["text"] for w in found["words"])
    assert all(0 <= w["start"] < w["end"] <= 3 and 0 < w["confidence"] <= 1 for w in found["words"])
    assert all(a["end"] <= b["start"] for a, b in zip(found["words"], found["words"][1:], strict=False))


def test_long_files_are_decoded_in_windows_and_it_is_said(model, tmp_path, capsys):
    path = write(tmp_path / "long.wav", noise(7))
    transcribe(model, path, "--max-seconds", "3")
    out = capsys.readouterr()
    assert "longer than 3 s, decoded in 3 windows" in out.err and out.out.startswith(path)


def test_other_rates_and_channels_are_refused_in_a_sentence_or_converted_when_told(model, tmp_path, capsys):
    mono = noise(2)
    write(tmp_path / "mono.wav", mono, subtype="FLOAT")
    write(tmp_path / "stereo.wav", np.stack([2 * mono, 0 * mono], 1), subtype="FLOAT")
    write(tmp_path / "rate.wav", np.zeros(44_100, np.float32), 44_100)
    for name, sentence in (("stereo", "2 channels"), ("rate", "44100 Hz")):
        with pytest.raises(SystemExit):
            transcribe(model, tmp_path / f"{name}.wav")
        error = capsys.readouterr().err
        assert sentence in error and f"{name}.wav" in error and "--resample" in error and "Traceback" not in error
    transcribe(model, *(tmp_path / f"{name}.wav" for name in ("mono", "stereo", "rate")), "--resample")
    texts = [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()]
    assert texts[0] == texts[1] and len(texts) == 3


def test_too_short_audio_is_a_sentence(model, tmp_path, capsys):
    with pytest.raises(SystemExit):
        transcribe(model, write(tmp_path / "short.wav", noise(0.03)))
    assert "short.wav: is shorter than one output frame of the model: give a longer" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-3", "soon", "0.9"])
def test_a_bound_below_a_second_or_that_is_no_number_is_refused_by_name(model, capsys, value):
    with pytest.raises(SystemExit):
        main(["transcribe", str(model), "x.wav", f"--max-seconds={value}"])
    error = capsys.readouterr().err
    assert "--max-seconds" in error and value in error and "Traceback" not in error


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (np.zeros(0, np.float32), "is empty"),
        (noise(0.01), "too short"),
        (np.where(np.arange(16_000) == 8000, np.nan, noise(1)), "sample 8000 (at 0.5000 s) is nan"),
        (np.where(np.arange(16_000) >= 5, np.inf, noise(1)), "sample 5 (at 0.0003 s) is inf"),
        (np.full(16_000, 1e25, np.float32), "sample 0 (at 0.0000 s) is 9.99"),
    ],
    ids=["empty", "160 samples", "NaN", "infinity", "overflow"],
)
def test_a_file_that_cannot_be_decoded_is_named_and_the_next_one_is_decoded(model, tmp_path, capsys, bad, sentence):
    paths = [tmp_path / name for name in ("before.wav", "bad.wav", "after.wav")]
    for path, samples in zip(paths, (noise(1, 1), bad, noise(1, 2)), strict=True):
        write(path, samples, subtype="FLOAT")
    with pytest.raises(SystemExit) as ended:
        transcribe(model, *paths)
    out = capsys.readouterr()
    assert ended.value.code == 1
    assert [line.split("\t")[0] for line in out.out.splitlines()] == [str(paths[0]), str(paths[2])]
    assert "bad.wav" in out.err and sentence in out.err and "Traceback" not in out.err


def test_names_that_would_fall_together_are_refused_before_anything_is_decoded(model, tmp_path, capsys):
    paths = [write(tmp_path / folder / "a.wav", noise(1)) for folder in ("one", "two")]
    for arguments in (("--format", "ctm"), ("--out", str(tmp_path / "out"))):
        with pytest.raises(SystemExit):
            transcribe(model, *paths, *arguments)
        assert "1 names are those of several recordings (first: a)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        transcribe(model, *paths, "--format", "vtt")
    assert "--format vtt: holds one recording a file: give --out FOLDER" in capsys.readouterr().err


def test_the_tokenizer_of_another_model_is_named(model, tmp_path, capsys):
    shutil.copytree(model, tmp_path / "model")
    train_tokenizer(["ONE TWO"], tmp_path / "model", "word")
    with pytest.raises(SystemExit):
        transcribe(tmp_path / "model", write(tmp_path / "a.wav", noise(1.0)))
    assert "tokens.txt has 5 tokens, the model 9: put its own tokenizer there" in capsys.readouterr().err
