"""The rivals of the pair mixer: summary and convolution against a loop over utterances, the Fourier transform against scipy."""

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import scipy.special
import torch

from geomix.errors import UserError
from geomix.mixers import Frames, make_mixer
from geomix.models.transformer_lm import LanguageModelConfig, TransformerLM, make_causal_mixer
from geomix.settings import load, resolve
from tests.conftest import ROOT
from tests.golden.mixers import exact, gradients, unsettled

WIDTH, LENGTHS = 6, (13, 5, 1)
RIVALS = {
    "summary": {"mixer": "summary"},
    "summary, narrow, causal": {"mixer": "summary", "hidden": 4, "causal": True},
    "convolution": {"mixer": "convolution", "kernel": 7},
    "convolution, causal": {"mixer": "convolution", "kernel": 5, "causal": True},
    "convolution, longer than the utterance": {"mixer": "convolution", "kernel": 33},
    "fourier": {"mixer": "fourier"},
}


def rival(name):
    with exact():
        mixer = unsettled(make_mixer(width=WIDTH, **RIVALS[name]))
        x = torch.randn(len(LENGTHS), max(LENGTHS), WIDTH)
    return mixer, x, Frames.of(torch.tensor(LENGTHS), max(LENGTHS))


def gelu(x):
    return x * (1 + scipy.special.erf(x / np.sqrt(2))) / 2


def norm(layer, x):
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + layer.eps)
    return scaled * layer.weight.detach().numpy() + layer.bias.detach().numpy()


def affine(layer, x):
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def summary(mixer, x):
    """One utterance (T, D): the joining map of [f(x_t); mean of s]."""
    rows, parts = [], gelu(affine(mixer.summary, x))
    for t in range(len(x)):
        mean = parts[: t + 1].mean(0) if mixer.causal else parts.mean(0)
        both = np.concatenate((norm(mixer.local_norm, gelu(affine(mixer.local, x[t]))), norm(mixer.summary_norm, mean)))
        rows.append(gelu(affine(mixer.join, both)))
    return np.stack(rows)


def convolution(mixer, x):
    """One utterance (T, D), channel by channel with scipy's correlation."""
    a, b = np.split(affine(mixer.enter, x), 2, axis=-1)
    x, taps = a * scipy.special.expit(b), mixer.depthwise.weight.detach().numpy()[:, 0]
    before = (taps.shape[1] - 1) // (1 if mixer.causal else 2)
    padded = np.pad(x, ((before, taps.shape[1] - 1 - before), (0, 0)))
    rows = [scipy.signal.correlate(padded[:, c], taps[c], "valid") for c in range(x.shape[1])]
    y = norm(mixer.norm, np.stack(rows, -1) + mixer.depthwise.bias.detach().numpy())
    return affine(mixer.leave, y * scipy.special.expit(y))


def fourier(mixer, x):
    """One utterance (T, D): the width's transform, then the time's, divided by the roots of their lengths."""
    return scipy.fft.fft(scipy.fft.fft(x, axis=1), axis=0).real / np.sqrt(x.size)


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_is_its_definition_utterance_by_utterance(name):
    mixer, x, frames = rival(name)
    y = mixer(x, frames).detach().numpy()
    definition = globals()[name.split(",")[0]]
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(y[row, :length], definition(mixer, x[row, :length].numpy()), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", RIVALS)
def test_padding_changes_no_real_frame_nor_any_gradient(name):
    mixer, x, frames = rival(name)
    loud = torch.where(frames.mask.unsqueeze(-1), x, 1e4)
    found = []
    for given in (x, loud):
        given = given.clone().requires_grad_()
        y = mixer(given, frames)[frames.mask]
        found.append((y, *gradients(y.square().mean(), mixer, given)))
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(plain, other, rtol=0, atol=1e-12)
    assert all(g.isfinite().all() and g.any() for g in found[0][1:])  # and every parameter is reached
    assert (found[0][1][~frames.mask] == 0).all()


@pytest.mark.parametrize("mixer", [{"mixer": "summary"}, {"mixer": "convolution", "kernel": 5}])
def test_causal_forms_read_no_later_token_and_stand_in_the_language_model(mixer):
    torch.manual_seed(0)
    config = LanguageModelConfig(vocab=11, positions=9, blocks=2, width=8, ff_dim=8, mixer=mixer)
    model = TransformerLM(config).eval()
    tokens = torch.arange(9).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 6:] = 10
    before, after = model.logits(tokens), model.logits(changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])
    assert config.parameters() == sum(p.numel() for p in model.parameters())


def test_the_fourier_transform_says_that_it_has_no_causal_form():
    with pytest.raises(UserError, match="mixer 'fourier' has no causal form: choose attention or"):
        make_causal_mixer({"mixer": "fourier"}, 8, 0, 0, blend=False)
    config = load(base=ROOT / "config.yaml")
    config["language"]["arms"]["fourier"] = {"mixer": "fourier"}
    with pytest.raises(UserError, match=r"language\.arms\.fourier.*fourier") as error:
        resolve(config)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("mixer", "words"),
    [({"mixer": "convolution", "kernel": 4}, "kernel 4"), ({"mixer": "summary", "hidden": 0}, "hidden 0")],
)
def test_mistakes_are_one_sentence(mixer, words):
    with pytest.raises(UserError, match=words):
        make_mixer(width=8, **mixer)


@pytest.mark.parametrize("length", [0, 1, 40])
@pytest.mark.parametrize("name", RIVALS)
def test_any_length_trains(name, length):
    mixer = make_mixer(width=WIDTH, **RIVALS[name])
    x = torch.randn(2, max(length, 3), WIDTH, requires_grad=True)
    mixer(x, Frames.of(torch.tensor([length, 3]), x.shape[1])).square().mean().backward()
    assert x.grad.isfinite().all()
