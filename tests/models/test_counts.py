"""Sizes by formula, without torch, beside those of the modules themselves."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from geomix.models.architectures import model_config
from geomix.models.config.transformer_lm import LanguageModelConfig
from geomix.models.flops import parameter_count
from geomix.models.transformer_lm import TransformerLM, train_flops_per_token
from geomix.settings import load, training_settings
from tests.conftest import ROOT

CONFORMER = {"vocab": 50, "blocks": 3, "width": 32, "ff_dim": 48, "kernel": 5}
INNER = {"blocks": [1, 2], "weight": 0.3}
SPEECH = {
    "attention": {},
    "heads of the model": {"heads": 2},
    "subsampling 8": {"subsampling": 8},
    "20 bands": {"features": 20},
    "intermediate CTC": {"intermediate_ctc": {**INNER, "self_conditioning": False}},
    "self-conditioned CTC": {"intermediate_ctc": {**INNER, "self_conditioning": True}},
    "none": {"mixer": {"mixer": "none"}, "ff_dim": 64},
    "pair": {"mixer": {"mixer": "pair", "kind": "geometric", "rank": 6, "one_offset_per_block": True}},
    "multivectors": {"mixer": {"mixer": "multivector_attention", "heads": 2, "temperature": "dot", "rotors": True}},
    "blocked": {"mixer": {"mixer": "blocked_attention", "heads": 2, "context": 7}},
}
GRANITE = {"architecture": "granite_encoder", "vocab": 12, "blocks": 3, "width": 24, "heads": 3, "ff_mult": 3}


def trainable(module):
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


@pytest.mark.parametrize("form", SPEECH)
def test_parameters_of_a_conformer(form):
    config = model_config({**CONFORMER, **SPEECH[form]})
    assert parameter_count(config) == trainable(config.build())


@pytest.mark.parametrize("changes", [{}, {"kernel": 4, "context": 9, "features": 40}, {"middle_weight": 0.0}])
def test_size_of_a_granite_encoder(changes):
    config = model_config({**GRANITE, **changes})
    model = config.build()
    assert parameter_count(config) == trainable(model)
    maps = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear | nn.Conv1d))
    size = min(config.context, 30)
    attention = config.blocks * config.width * (size + 2 * size - 1 + size)
    assert config.macs_per_frame(30) == maps + config.width * config.vocab + attention  # the head is used twice


@pytest.mark.parametrize("arm", ["attention", "grassmann", "symmetric", "no_mixer", "signed", "geometric"])
def test_parameters_of_the_full_study(arm):
    settings = training_settings(load(base=ROOT / "config.yaml"), arm, 0, "own")
    config = model_config({**settings["model"], "vocab": 5000})
    with torch.device("meta"):
        assert parameter_count(config) == trainable(config.build())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"extra_linear": True},
        {"norm": "pre", "mixer": {"mixer": "pair", "rank": 6, "kind": "geometric"}},
        {"mixer": {"mixer": "multivector_attention", "heads": 2, "temperature": "grade"}},
    ],
    ids=["attention", "extra linear", "pair", "multivectors"],
)
def test_size_of_a_language_model(changes):
    config = LanguageModelConfig.from_dict({"vocab": 70, "width": 32, "ff_dim": 48, "blocks": 2, **changes})
    model = TransformerLM(config)
    assert config.parameters() == trainable(model)
    maps = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear))
    attention = 0 if config.mixer["mixer"] == "pair" else config.blocks * 20 * config.width  # half of two products
    assert train_flops_per_token(config, 20) == 6 * (maps + attention + 70 * 32)


@pytest.mark.parametrize("command", [["arms"], ["arms", "--configfile", "config/granite_encoder.yaml"], ["plan"]])
def test_sizes_of_the_houses_own_models_load_no_torch(command):
    code = f"import sys; from geomix import cli; cli.main({command!r}); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "26,958,472" in done.stdout, done.stderr
