"""A tiny instance of each model of the house. Something else stands in the mixer's slot, so that a mixer's change asks for
the mixer's version alone.

ESPnet's E-Branchformer has no case: its code is ESPnet's, and the release is part of its trainings' settings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from geomix.mixers import Frames, PairMixer
from geomix.models import conformer, transformer_lm
from geomix.models.granite.encoder_ctc import GraniteEncoderCTCConfig
from geomix.settings.trainings import MODEL_VERSIONS
from tests.golden.mixers import exact, gradients, unsettled
from tests.golden.store import FOLDER, Case, Values, figures

FILE = FOLDER / "models.json"
VOCABULARY, FEATURES = 7, 20


class _StandIn(nn.Module):
    """Mixes the real frames up to each one, without parameters; its factor tells which block and seed it was made for."""

    def __init__(self, block: int, seed: int) -> None:
        super().__init__()
        self.factor = 1 + block / 4 + seed / 16

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        y = (self.factor * x).tanh().masked_fill(~frames.mask.unsqueeze(-1), 0).cumsum(1) / 4
        return y if frames.positions is None else y + frames.positions[:, -x.shape[1] :] / 4


class _PairStandIn(_StandIn, PairMixer):
    """What the language model takes for a pair mixer, whose gate stands for the residual connection."""

    def __init__(self, block: int, seed: int, blend: bool, two_sided: bool) -> None:
        nn.Module.__init__(self)
        self.blend = blend
        self.factor = 1 + block / 4 + seed / 16 + blend / 32 + two_sided / 64

    forward = _StandIn.forward


def _conformer(**options: Any) -> nn.Module:
    def make_mixer(mixer: str, width: int, *, block: int, seed: int, **arguments: Any) -> nn.Module | None:
        return None if mixer == "none" else _StandIn(block, seed)

    values = {
        "vocab": VOCABULARY, "features": FEATURES, "blocks": 3, "width": 8, "ff_dim": 12, "kernel": 5, "seed": 3,
        "dropout": 0.0, "positional_dropout": 0.0, "attention_dropout": 0.0, "mixer": {"mixer": "attention", "heads": 2},
    }  # fmt: skip
    with mock.patch.object(conformer, "make_mixer", make_mixer):
        model = conformer.ConformerConfig.from_dict({**values, **options}).build()
    model.needs_positions = model.config.mixer["mixer"] == "attention"
    return model


def _granite_encoder(**options: Any) -> nn.Module:
    values = {
        "vocab": VOCABULARY, "features": FEATURES, "blocks": 4, "width": 8, "heads": 2, "ff_mult": 2, "kernel": 5,
        "context": 4, "dropout": 0.0, "middle_weight": 0.3,
    }  # fmt: skip
    return GraniteEncoderCTCConfig.from_dict({**values, **options}).build()


def _speech(build: Callable[..., nn.Module], lengths: tuple[int, int], options: Mapping[str, Any]) -> Values:
    """Loss and gradient in train mode, then log-probabilities of the real frames in eval mode, of two utterances."""
    with exact():
        model = unsettled(build(**options))
        model.set_normalisation(torch.randn(FEATURES), 1 + torch.rand(FEATURES))
        features, frames = torch.randn(2, max(lengths), FEATURES, requires_grad=True), torch.tensor(lengths)
        tokens, token_lengths = torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([3, 2])
        loss = model.train()(features, frames, tokens, token_lengths)["loss"]
        gradient = gradients(loss, model, features)
        with torch.no_grad():  # after the step in train mode, whose statistics batch norm keeps
            log_probs, real = model.eval().log_probs(features, frames)
        output = log_probs[torch.arange(log_probs.shape[1]) < real.unsqueeze(1)]
        return {"loss": [loss.item()], "gradient": figures(*gradient), "output": figures(output)}


def _language(options: Mapping[str, Any]) -> Values:
    """Loss and gradient in train mode and scores in eval mode of two blocks of seven tokens."""

    def make_mixer(mixer: str, width: int, *, block: int, seed: int, blend: bool, two_sided: bool, **arguments: Any):
        return _PairStandIn(block, seed, blend, two_sided)

    values = {"vocab": 11, "positions": 8, "blocks": 2, "width": 8, "ff_dim": 12, "dropout": 0.0, "seed": 3}
    with exact():
        with mock.patch.object(transformer_lm, "make_mixer", make_mixer):
            config = transformer_lm.LanguageModelConfig.from_dict({**values, **options})
            model = unsettled(transformer_lm.TransformerLM(config))
        tokens = torch.arange(16).reshape(2, 8).square() % 11
        loss = model.train()(tokens[:, :-1], tokens[:, 1:])["loss"]
        gradient = gradients(loss, model)
        with torch.no_grad():
            output = model.eval().logits(tokens[:, :-1])
        return {"loss": [loss.item()], "gradient": figures(*gradient), "output": figures(output)}


_INNER = {"blocks": [1, 2], "weight": 0.3}
_PAIR = {"mixer": "pair"}
_COMPUTED: dict[str, Callable[[], Values]] = {
    **{
        f"conformer, {name}": functools.partial(_speech, _conformer, (61, 40), options)
        for name, options in {
            "subsampling 4": {"subsampling": 4},
            "subsampling 8": {"subsampling": 8},
            "empty slot": {"mixer": {"mixer": "none"}},
            "masked batch norm": {"batch_norm": "masked"},
            "intermediate CTC": {"intermediate_ctc": {**_INNER, "self_conditioning": False}},
            "self-conditioned CTC": {"intermediate_ctc": {**_INNER, "self_conditioning": True}},
        }.items()
    },
    "granite_encoder": functools.partial(_speech, _granite_encoder, (21, 14), {}),
    "granite_encoder, equal lengths": functools.partial(_speech, _granite_encoder, (21, 21), {}),
    "granite_encoder, final head alone": functools.partial(_speech, _granite_encoder, (21, 14), {"middle_weight": 0.0}),
    **{
        f"transformer_lm, {name}": functools.partial(_language, options)
        for name, options in {
            # causal attention is the model's own code, not a mixer's
            "attention, post": {"mixer": {"mixer": "attention", "heads": 2}},
            "attention, pre": {"mixer": {"mixer": "attention", "heads": 2}, "norm": "pre"},
            "pair, post": {"mixer": _PAIR},
            "pair, pre": {"mixer": _PAIR, "norm": "pre"},
            "pair, extra linear": {"mixer": _PAIR, "extra_linear": True},
            "pair, init_std": {"mixer": _PAIR, "init_std": 0.5},
        }.items()
    },
}
CASES = [
    Case(name, model, MODEL_VERSIONS[model], compute)
    for name, compute in _COMPUTED.items()
    for model in [name.split(",")[0]]
]
