"""`geomix transcribe`: audio in, text out; long files in pieces; bad files in a sentence."""

import shutil

import numpy as np
import pytest
import soundfile
import torch

from geomix.cli import main
from geomix.commands.transcribe import cut
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.models.saved import save_model
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


def test_text_is_that_of_the_models_most_probable_path(model, tmp_path, capsys):
    paths = []
    for number, seconds in enumerate((1.0, 2.5)):
        paths.append(str(tmp_path / f"{number}.{'wav' if number else 'flac'}"))
        soundfile.write(paths[-1], noise(seconds, number), 16_000)
    main(["transcribe", str(model), *paths, "--device", "cpu"])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines] == paths
    from geomix.models.saved import load_model

    network, tokenizer = load_model(model), Tokenizer.load(model)
    for path, text in lines:
        waveform, _ = soundfile.read(path, dtype="float32")
        features = torch.from_numpy(log_mel(waveform))[None]
        with torch.no_grad():
            path_ids = network.log_probs(features, torch.tensor([features.shape[1]]))[0][0].argmax(-1).tolist()
        assert text == tokenizer.decode(collapse(path_ids))
    assert any(text for _, text in lines)


def test_long_files_are_cut_at_quiet_places_and_it_is_said(model, tmp_path, capsys):
    path = tmp_path / "long.wav"
    soundfile.write(path, noise(7), 16_000)
    main(["transcribe", str(model), str(path), "--max-seconds", "3", "--device", "cpu"])
    out = capsys.readouterr()
    assert "longer than 3 s, decoded in 3 pieces" in out.err and out.out.startswith(str(path))


def test_cuts_fall_into_silence_and_lose_nothing():
    waveform = noise(70)
    silence = slice(int(27.0 * 16_000), int(27.2 * 16_000))
    waveform[silence] = 0
    pieces = cut(waveform, 30.0)
    assert np.array_equal(np.concatenate(pieces), waveform)
    assert silence.start < len(pieces[0]) < silence.stop
    assert all(len(piece) <= 30 * 16_000 for piece in pieces) and len(pieces) == 3
    for seconds in (30.0, 30.01, 30.3, 31.0, 59.99):
        pieces = cut(noise(seconds), 30.0)
        assert min(map(len, pieces)) >= 8000 - 1 or len(pieces) == 1
    assert [len(piece) for piece in cut(noise(2), 30.0)] == [32_000]


@pytest.mark.parametrize(("rate", "channels", "sentence"), [(44_100, 1, "44100 Hz"), (16_000, 2, "2 channels")])
def test_wrong_rate_or_channels_is_a_sentence(model, tmp_path, capsys, rate, channels, sentence):
    path = tmp_path / "bad.wav"
    soundfile.write(path, np.zeros((rate, channels), np.float32), rate)
    with pytest.raises(SystemExit):
        main(["transcribe", str(model), str(path), "--device", "cpu"])
    error = capsys.readouterr().err
    assert sentence in error and "bad.wav" in error and "Traceback" not in error


def test_too_short_audio_is_a_sentence(model, tmp_path, capsys):
    path = tmp_path / "short.wav"
    soundfile.write(path, noise(0.03), 16_000)
    with pytest.raises(SystemExit):
        main(["transcribe", str(model), str(path), "--device", "cpu"])
    assert "give a longer recording" in capsys.readouterr().err


@pytest.mark.parametrize("max_seconds", [1.0, 1.01, 1.5, 2.0, 2.5, 2.55, 3.0, 30.0])
def test_any_length_is_cut_into_pieces_within_the_bound(max_seconds):
    """The search for a quiet place had no place below 2.55 s, between the bound and 0.8 of it and half a second."""
    bound = int(max_seconds * 16_000)
    lengths = {
        bound,
        bound + 1,
        bound + 799,
        bound + 4000,
        bound + 8000,
        bound + 8001,
        2 * bound - 1,
        3 * bound + 5,
        19_200,
    }
    for length in lengths:
        waveform = noise(length / 16_000)[:length]
        pieces = cut(waveform, max_seconds)
        assert np.array_equal(np.concatenate(pieces), waveform)
        assert max(map(len, pieces)) <= bound
        assert len(pieces) == 1 or min(map(len, pieces)) >= 6400  # 0.4 s: far more than one output frame


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0", "-3", "soon"])
def test_a_bound_that_is_no_number_above_0_is_refused_by_name(model, tmp_path, capsys, value):
    with pytest.raises(SystemExit):
        main(["transcribe", str(model), "x.wav", f"--max-seconds={value}"])
    error = capsys.readouterr().err
    assert "--max-seconds" in error and value in error and "Traceback" not in error


def test_a_bound_below_a_second_is_a_sentence(model, capsys):
    with pytest.raises(SystemExit):
        main(["transcribe", str(model), "x.wav", "--max-seconds", "0.9"])
    assert "--max-seconds 0.9: give at least 1" in capsys.readouterr().err


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
        soundfile.write(path, samples, 16_000, subtype="FLOAT")
    with pytest.raises(SystemExit) as ended:
        main(["transcribe", str(model), *map(str, paths), "--device", "cpu"])
    out = capsys.readouterr()
    assert ended.value.code == 1
    assert [line.split("\t")[0] for line in out.out.splitlines()] == [str(paths[0]), str(paths[2])]
    assert "bad.wav" in out.err and sentence in out.err and "Traceback" not in out.err


def test_new_lines_of_a_text_do_not_break_its_line(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "geomix.speech.decoding.greedy_decode", lambda *_, **__: {"0": "ONE\nTWO", "1": "", "2": "THREE\tFOUR\r"}
    )
    path = tmp_path / "one.wav"
    soundfile.write(path, noise(1), 16_000)
    main(["transcribe", str(model), str(path), "--device", "cpu"])
    assert capsys.readouterr().out == f"{path}\tONE TWO THREE FOUR\n"


def test_the_tokenizer_of_another_model_is_named(model, tmp_path, capsys):
    shutil.copytree(model, tmp_path / "model")
    train_tokenizer(["ONE TWO"], tmp_path / "model", "word")
    soundfile.write(tmp_path / "a.wav", noise(1.0), 16_000)
    with pytest.raises(SystemExit):
        main(["transcribe", str(tmp_path / "model"), str(tmp_path / "a.wav"), "--device", "cpu"])
    assert "tokens.txt has 5 tokens, the model 9: put its own tokenizer there" in capsys.readouterr().err
