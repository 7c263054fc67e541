"""Fine-tuning: what is taken over from a trained model, what is refused by name, and that its weights are among the settings."""

import copy
import shutil

import pytest
import torch

from geomix.errors import UserError
from geomix.models.architectures import model_config
from geomix.models.saved import load_model, save_model
from geomix.settings import resolve, training_settings
from geomix.settings.config import load
from geomix.settings.initial import initial_weights
from geomix.settings.trainings import settings_hash
from geomix.speech.starting import Start, start_from
from geomix.speech.tokenizer import Tokenizer, train_tokenizer
from tests.conftest import ROOT

SHAPE = {
    "blocks": 2, "width": 8, "ff_dim": 8, "kernel": 3, "heads": 2,
    "intermediate_ctc": {"blocks": [1], "weight": 0.3, "self_conditioning": True},
}  # fmt: skip


def network(folder, seed, **changes):
    torch.manual_seed(seed)
    return model_config({"vocab": Tokenizer.load(folder).size, **SHAPE, **changes}).build().eval()


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    train_tokenizer(["ONE TWO THREE"], folder, "word")
    save_model(network(folder, 1), folder)
    return folder


def start(model, folder, old):
    tokenizer, origin = Tokenizer.load(folder), initial_weights(str(old), "attention", 0)
    start_from(model, tokenizer, origin)
    return Start.of(tokenizer, origin)


def outputs(model):
    features = torch.randn(2, 90, 80, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model.eval().log_probs(features, torch.tensor([90, 61]))[0]


def test_the_same_units_give_the_same_model(old):
    model = network(old, 2)
    assert not torch.equal(outputs(model), outputs(load_model(old)))
    found = start(model, old, old)
    assert torch.equal(outputs(model), outputs(load_model(old)))
    assert (found.kept, found.new, found.folder) == (6, [], str(old))


def test_units_take_the_rows_of_the_same_text_and_new_ones_keep_their_own(old, tmp_path):
    train_tokenizer(["TWO FOUR ONE FIVE"], tmp_path, "word")
    model = network(tmp_path, 2)
    model.set_normalisation(torch.full((80,), -7.0), torch.full((80,), 2.0))
    first, trained = copy.deepcopy(model), load_model(old)
    found = start(model, tmp_path, old)
    there, here = Tokenizer.load(old).tokens, Tokenizer.load(tmp_path).tokens
    assert sorted(found.new) == ["▁FIVE", "▁FOUR"] and found.kept == 5
    for row, token in enumerate(here):
        source, place = (trained, there.index(token)) if token in there else (first, row)
        assert torch.equal(model.ctc.weight[row], source.ctc.weight[place])
        assert torch.equal(model.ctc.bias[row], source.ctc.bias[place])
        assert torch.equal(model.conditioning.weight[:, row], source.conditioning.weight[:, place])
    assert torch.equal(model.embed.out.weight, trained.embed.out.weight)
    assert float(model.mean[0]) == -7.0 and float(model.std[0]) == 2.0  # the new data's


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"ff_dim": 16},
            r"does not fit this model: blocks.0.feed_forward_macaron.w_1.weight is 8x8 there, 16x8 here; .* and \d+ more",
        ),
        ({"blocks": 3}, "blocks.2.* is not there; .*start from a model with the same keys"),
        ({"mixer": {"mixer": "none"}}, "blocks.0.*mixer.* is there alone"),
        (
            {"intermediate_ctc": None},
            "conditioning.weight is there alone; conditioning.bias is there alone: start from",
        ),
    ],
)
def test_what_cannot_be_loaded_is_named_and_nothing_is_loaded(old, changes, sentence):
    model = network(old, 2, **changes)
    before = outputs(model)
    with pytest.raises(UserError, match=sentence):
        start(model, old, old)
    assert torch.equal(outputs(model), before)


def settings_of(folder):
    config = load(ROOT / "config/smoke.yaml", base=ROOT / "config.yaml")
    config["training"]["init_from"] = str(folder)
    config["study"]["arms"], config["comparison"]["planned"], config["hypothesis"] = ["attention"], [], []
    return training_settings(resolve(config), "attention", 0, "own")


def test_a_training_is_named_by_the_weights_it_starts_from_wherever_they_lie(old, tmp_path):
    shutil.copytree(old, tmp_path / "attention-0")
    here, there = settings_of(old), settings_of(tmp_path / "{arm}-{seed}")
    assert there["init_from"]["folder"] == str(tmp_path / "attention-0")
    assert settings_hash(here, {}) == settings_hash(there, {})
    plain = {key: value for key, value in here.items() if key != "init_from"}
    assert "init_from" not in plain["training"] and settings_hash(plain, {}) != settings_hash(here, {})
    save_model(network(old, 5), tmp_path / "attention-0")
    changed = settings_of(tmp_path / "{arm}-{seed}")
    assert settings_hash(changed, {}) != settings_hash(here, {})
    with pytest.raises(UserError, match="has changed since the settings were read"):
        start_from(network(old, 2), Tokenizer.load(old), there["init_from"])
    with pytest.raises(
        UserError, match=r"training.init_from: .*absent/model.safetensors: cannot be read .* arm attention"
    ):
        settings_of(tmp_path / "absent")


def test_the_track_espnet_is_refused(old):
    config = load(base=ROOT / "config.yaml")
    config["training"]["init_from"] = str(old)
    with pytest.raises(UserError, match="training.init_from .*take espnet out of study.tracks"):
        resolve(config)
