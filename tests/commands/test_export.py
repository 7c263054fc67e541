"""`geomix export`: a folder that loads by itself, its model card, and a graph that gives the model's numbers."""

import json
import shutil
import sys

import pytest
import torch

from geomix.cli import main
from geomix.models.architectures import model_config
from geomix.models.saved import load_model, save_model
from geomix.speech.features import log_mel
from geomix.speech.scoring import score_texts, write_score
from geomix.speech.tokenizer import Tokenizer, train_tokenizer
from tests.report.made_up import RECORD


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return made(tmp_path_factory.mktemp("model"), {"mixer": "attention", "heads": 2})


def made(folder, mixer):
    train_tokenizer(["ONE TWO THREE"], folder, "word")
    torch.manual_seed(0)
    shape = {"blocks": 1, "width": 8, "ff_dim": 8, "kernel": 3, "heads": 2, "mixer": mixer}
    save_model(model_config({"vocab": Tokenizer.load(folder).size, **shape}).build(), folder)
    return folder


def outputs(folder):
    features = torch.randn(1, 90, 80, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return load_model(folder).log_probs(features, torch.tensor([90]))[0]


def test_the_folder_loads_by_itself_and_says_what_it_takes_in(model, tmp_path):
    shutil.copytree(model, tmp_path / "run")
    main(["export", str(tmp_path / "run"), str(tmp_path / "out")])
    wanted = outputs(model)
    shutil.rmtree(tmp_path / "run")
    assert torch.equal(outputs(tmp_path / "out"), wanted)
    assert not (tmp_path / "out/README.md").exists()  # nothing is known of its training
    about = json.loads((tmp_path / "out/features.json").read_text())
    wave = torch.randn(4000, dtype=torch.float64)
    window = torch.hann_window(about["window_samples"], dtype=torch.float64)
    shape = {"hop_length": about["hop_samples"], "win_length": about["window_samples"], "window": window}
    power = torch.stft(wave, about["n_fft"], **shape, pad_mode=about["centred"], return_complex=True).abs() ** 2
    from torchaudio.functional import melscale_fbanks

    filters = melscale_fbanks(257, 0.0, 8000.0, about["mels"], about["sample_rate"], norm="slaney", mel_scale="slaney")
    expected = (power.T @ filters.double()).clamp(min=about["floor"]).log()
    torch.testing.assert_close(log_mel(wave), expected, atol=1e-3, rtol=0)


def test_the_card_holds_the_rate_with_its_interval(model, tmp_path):
    shutil.copytree(model, tmp_path / "run")
    record = json.loads(RECORD.read_text()) | {"arm": "attention", "seed": 3, "corpus": "an4"}
    (tmp_path / "run/record.json").write_text(json.dumps(record))
    texts = {f"u{n}": "ONE TWO" for n in range(4)}
    speakers = {f"u{n}": f"s{n % 2}" for n in range(4)}
    score = score_texts(texts, {**texts, "u1": "ONE"}, speakers, set="test")
    write_score(score, tmp_path / "run/score/test.json", tmp_path / "run/score/test.tsv")
    main(["export", str(tmp_path / "run"), str(tmp_path / "out")])
    card = (tmp_path / "out/README.md").read_text()
    assert card.startswith("# an4: attention, seed 3\n") and "| test | 12.50 | [0.00, 25.00] | 8 | 2 |" in card
    assert "AN4" in card and "What it is not for" in card


def test_mistakes_are_told_in_a_sentence(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for arguments, sentence in (
        ([model, model], "is the model's own folder: name another place"),
        ([tmp_path, tmp_path / "out"], "no such file; give the folder of a trained model"),
        ([model, tmp_path / "out", "--onnx"], "onnxruntime is not installed: pip install -r requirements-export.txt"),
    ):
        with pytest.raises(SystemExit):
            main(["export", *map(str, arguments)])
        assert sentence in capsys.readouterr().err
        assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_the_graph_gives_the_models_numbers_at_any_length(model, tmp_path, capsys):
    runtime = pytest.importorskip("onnxruntime", reason="pip install -r requirements-export.txt")
    main(["export", str(model), str(tmp_path / "out"), "--onnx"])
    session = runtime.InferenceSession(str(tmp_path / "out/model.onnx"))
    for length in (40, 333):
        features = torch.randn(1, length, 80)
        with torch.no_grad():
            wanted = load_model(model).log_probs(features, torch.tensor([length]))[0]
        found = torch.from_numpy(session.run(None, {"features": features.numpy()})[0])
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    pairs = made(tmp_path / "pairs", {"mixer": "pair", "rank": 4, "offsets": [1, 2]})
    with pytest.raises(SystemExit):
        main(["export", str(pairs), str(tmp_path / "none"), "--onnx"])
    assert "its mixer (pair) cannot be written as one graph for all lengths" in capsys.readouterr().err
    assert not list((tmp_path / "none").iterdir())
