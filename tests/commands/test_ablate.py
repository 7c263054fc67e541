"""`geomix ablate`: what is taken out is out, and nothing else; tables beside the model; mistakes in a sentence."""

import csv

import numpy as np
import pytest
import soundfile
import torch

from geomix.cli import main
from geomix.mixers import Frames
from geomix.models.ablation import ablations
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.models.saved import load_model, save_model
from geomix.speech.features import write_features
from geomix.speech.manifest import Utterance, write_manifest
from geomix.speech.tokenizer import Tokenizer, train_tokenizer

PAIR = {"mixer": "pair", "rank": 4, "offsets": [1, 2]}


def model_of(mixer, vocab=7, kernel=9):
    torch.manual_seed(0)
    config = ConformerConfig(vocab=vocab, blocks=2, width=8, ff_dim=8, kernel=kernel, mixer=mixer)
    network = ConformerCTC(config)
    network.set_normalisation(np.full(80, -10.0), np.full(80, 3.0))
    torch.nn.init.normal_(network.ctc.weight, std=3.0)
    return network.eval()


def outputs(network):
    features = torch.randn(2, 90, 80, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return network.log_probs(features, torch.tensor([90, 61]))[0]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model with pairs, one without a mixer, and a prepared set of four utterances of two speakers."""
    root = tmp_path_factory.mktemp("ablate")
    generator, utterances = np.random.default_rng(0), []
    for number, seconds in enumerate((1.0, 1.5, 2.0, 1.2)):
        path = root / f"{number}.flac"
        soundfile.write(path, 0.1 * generator.normal(size=int(16_000 * seconds)), 16_000)
        utterances.append(
            Utterance(f"s{number % 2}-{number}", f"s{number % 2}", str(path), int(16_000 * seconds), 1.0, "ONE TWO SIX")
        )
    write_manifest(root / "set" / "manifest" / "test.tsv", utterances)
    write_features(utterances, root / "set" / "features" / "test-sp1.0", progress=False)
    for name, mixer in (("pairs", PAIR), ("none", {"mixer": "none"})):
        train_tokenizer(["ONE TWO THREE FOUR FIVE SIX"], root / name, "word")
        save_model(model_of(mixer, Tokenizer.load(root / name).size), root / name)
    return root


def test_tables_and_figure_beside_the_model(folders, capsys):
    main(["ablate", str(folders / "pairs"), str(folders / "set"), "--device", "cpu", "--resamples", "50"])
    rows = list(csv.DictReader((folders / "pairs" / "ablation.csv").open()))
    assert [row["ablation"] for row in rows] == [
        "mixer of block 1 closed", "mixer of block 2 closed", "all mixers closed", "offset 1 removed", "offset 2 removed",
        "past removed", "future removed", "sign of the future flipped", "convolution cut to 7 frames",
    ]  # fmt: skip
    whole = float(capsys.readouterr().out.split("WER ")[1].split(" %")[0])
    for row in rows:
        assert float(row["wer"]) - whole == pytest.approx(float(row["difference"]), abs=0.006)
        assert float(row["low"]) <= float(row["difference"]) <= float(row["high"])
    page = (folders / "pairs" / "ablation.md").read_text()
    assert "4 utterances of 2 speakers" in page and "rough" in page and page.count("\n| ") == 11
    assert all((folders / "pairs" / f"ablation.{form}").stat().st_size > 1000 for form in ("png", "svg"))


def test_closing_all_mixers_of_a_model_without_any_changes_nothing(folders, tmp_path):
    arguments = ["ablate", str(folders / "none"), str(folders / "set"), "--device", "cpu", "--out", str(tmp_path)]
    main([*arguments, "--blocks", "1"])
    rows = list(csv.DictReader((tmp_path / "ablation.csv").open()))
    assert [row["ablation"] for row in rows if row["kind"] == "mixer"] == [
        "mixer of block 1 closed",
        "all mixers closed",
    ]
    assert {row["difference"] for row in rows if row["kind"] == "mixer"} == {"0.0"}
    assert not (folders / "none" / "ablation.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "set"], ["nowhere", "give the folder of a trained model"]),
        (["pairs", "pairs"], ["pairs: no prepared set"]),
        (["pairs", "set", "--blocks", "3"], ["block 3", "1 to 2"]),
        (["pairs", "set", "--offsets", "4"], ["offset 4", "1, 2"]),
        (["none", "set", "--offsets", "1"], ["offset 1", "no pair mixer"]),
        (["pairs", "set", "--kernels", "9"], ["kernel 9", "below the model's own, 9"]),
    ],
)
def test_a_mistake_is_a_sentence(folders, arguments, words, capsys):
    places = [str(folders / part) for part in arguments[:2]]
    with pytest.raises(SystemExit):
        main(["ablate", *places, *arguments[2:], "--device", "cpu"])
    said = capsys.readouterr().err
    assert said.startswith("geomix: ") and said.count("\n") == 1 and all(word in said for word in words)


@pytest.mark.parametrize("weights", ["shared", "side", "offset"])
def test_an_offset_removed_is_the_model_that_never_had_it(weights):
    """With a map for each offset its map goes too; the last one leaves a mixer without pairs."""
    model = model_of({**PAIR, "offsets": [1, 2, 5], "weights": weights})
    first, *_ = [change for change in ablations(model, offsets=[2]) if change.kind == "offset"]
    before = outputs(model)
    mixer, x, frames = first.of(model).blocks[0].mixer, torch.randn(1, 12, 8), Frames.of(torch.tensor([12]), 12)
    other = model_of({**PAIR, "offsets": [1, 5], "weights": weights}).blocks[0].mixer
    state = mixer.state_dict()
    other.load_state_dict(state)
    torch.testing.assert_close(mixer(x, frames), other(x, frames))
    assert torch.equal(outputs(model), before)  # the model itself stays as it was
    for offset in (1, 2, 5):
        (change,) = [change for change in ablations(model, offsets=[offset]) if change.kind == "offset"]
        model = change.of(model)
    assert (model.blocks[0].mixer.mixed(x, frames) == 0).all() and outputs(model).isfinite().all()


def test_the_convolution_cut_is_the_smaller_kernel(folders):
    model = model_of({"mixer": "none"}, kernel=9)
    (change,) = [change for change in ablations(model, kernels=[3]) if change.kind == "convolution"]
    small = model_of({"mixer": "none"}, kernel=3)
    state = model.state_dict()
    for name in [name for name in state if name.endswith("depthwise_conv.weight")]:
        state[name] = state[name][..., 3:-3]
    small.load_state_dict(state)
    torch.testing.assert_close(outputs(change.of(model)), outputs(small))


def test_sides_are_those_of_a_loaded_model(folders):
    model = load_model(folders / "pairs")
    found = {change.name: outputs(change.of(model)) for change in ablations(model) if change.kind == "side"}
    assert len(found) == 3 and not any(torch.equal(y, outputs(model)) for y in found.values())
    causal = model_of({**PAIR, "two_sided": False})
    assert not [change for change in ablations(causal) if change.kind == "side"]
