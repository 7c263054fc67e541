"""Models of the speech study by the name of their architecture: settings, sizes, saving and loading."""

import pytest
import torch

from geomix.errors import UserError
from geomix.models.architectures import model_config
from geomix.models.arms import arm_sizes
from geomix.models.conformer import ConformerCTC
from geomix.models.flops import parameter_count, train_flops_per_audio_second
from geomix.models.granite.encoder_ctc import GraniteEncoderCTC
from geomix.models.saved import load_model, save_model
from geomix.settings import load, training_settings
from tests.conftest import ROOT

TINY = {
    "architecture": "granite_encoder",
    "blocks": 2,
    "width": 16,
    "heads": 2,
    "kernel": 5,
    "context": 20,
    "vocab": 12,
}


def test_the_granite_encoder_is_an_arm_whose_settings_are_its_own():
    config = load(ROOT / "config/demo.yaml", ROOT / "config/granite_encoder.yaml", base=ROOT / "config.yaml")
    settings = training_settings(config, "granite", 0, "own")
    assert "mixer" not in settings["model"] and "subsampling" not in settings["model"]
    model = model_config({**settings["model"], "vocab": 50}).build()
    assert isinstance(model, GraniteEncoderCTC)
    sizes = {size.arm: size for size in arm_sizes(config, 50)}
    assert sizes["granite"].parameters == sum(p.numel() for p in model.parameters())
    assert sizes["granite"].mixer == {"mixer": "granite_encoder"} and sizes["granite"].unmatched
    assert isinstance(
        model_config({**training_settings(config, "blocked", 0, "own")["model"], "vocab": 50}).build(), ConformerCTC
    )


def test_flops_of_the_granite_encoder_by_hand():
    """Width 16, two blocks: each linear map and convolution once a frame, the head twice, a window of 20 frames."""
    width, inner, vocab = 16, 32, 12
    block = 4 * 4 * width**2 + 4 * width**2 + (2 * inner * width + 5 * inner + inner * width) + width * (20 + 39 + 20)
    macs = 160 * width + 2 * block + 3 * width * vocab
    assert train_flops_per_audio_second(model_config(TINY)) == 6 * 50 * macs
    assert parameter_count(model_config(TINY)) == sum(p.numel() for p in model_config(TINY).build().parameters())


def test_save_and_load_without_naming_the_architecture(tmp_path):
    torch.manual_seed(0)
    model = model_config(TINY).build().eval()
    save_model(model, tmp_path)
    features, lengths = torch.randn(2, 60, 80), torch.tensor([60, 41])
    expected, frames = model.log_probs(features, lengths)
    found, again = load_model(tmp_path).log_probs(features, lengths)
    assert torch.equal(found, expected) and torch.equal(frames, again)


def test_unknown_architectures_and_keys_are_named():
    with pytest.raises(UserError, match="transducer"):
        model_config({"architecture": "transducer"})
    with pytest.raises(UserError, match="contxt"):
        model_config({**TINY, "contxt": 3})
