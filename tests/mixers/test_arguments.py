"""Arguments of the mixers: the counts that they give without torch are the modules' own, and defaults are the modules'."""

import inspect
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from geomix.errors import UserError
from geomix.kernels.relative_attention import attend
from geomix.mixers import Frames, make_mixer
from geomix.mixers.attention import module as attention_module
from geomix.mixers.lazy import named
from geomix.mixers.registry import MIXERS, arguments_of
from geomix.models.transformer_lm import make_causal_mixer
from tests.golden.mixers import INSTANCES

# the instances of the golden outputs, at other sizes, and what they leave out
FORMS = {
    **{name: {k: v for k, v in values.items() if k not in ("heads", "blend")} for name, values in INSTANCES.items()},
    "blocks longer than the sequence": {"mixer": "blocked_attention", "context": 100},
    "geometric rank 7": {"mixer": "pair", "kind": "geometric", "rank": 7, "form": "paper"},
    "one offset, paper": {"mixer": "pair", "one_offset_per_block": True, "form": "paper"},
    "Cl(1, 1, 1)": {"mixer": "multivector_attention", "signature": [1, 1, 1], "temperature": "grade", "value_terms": 3},
    "rotors on vectors": {"mixer": "multivector_attention", "signature": [4, 0, 0], "grades": [1], "rotors": True},
    "none": {"mixer": "none"},
}
WIDTH, FRAMES = 64, 26


def trainable(module):
    return sum(p.numel() for p in module.parameters() if p.requires_grad) if module is not None else 0


@pytest.mark.parametrize("form", FORMS)
def test_parameters_are_the_modules(form):
    assert arguments_of(FORMS[form]).parameters(WIDTH) == trainable(make_mixer(width=WIDTH, **FORMS[form]))


@pytest.mark.parametrize(
    ("mixer", "parameters"),
    [
        ({"mixer": "attention"}, 329_216),
        ({"mixer": "pair"}, 266_784),
        ({"mixer": "pair", "kind": "symmetric"}, 266_784),
        ({"mixer": "pair", "kind": "geometric"}, 267_040),
    ],
)
def test_published_counts(mixer, parameters):
    assert arguments_of(mixer).parameters(256) == parameters


# the table of random signs is applied as a matrix product, which is no map of the mixer's
COUNTED = [
    form
    for form in FORMS
    # nor does the counter see Fourier transforms and depthwise taps on a CPU
    if FORMS[form]["mixer"] not in ("none", "fourier") and FORMS[form].get("kind") != "signed"
]


@pytest.mark.parametrize("form", COUNTED)
def test_multiply_adds_are_those_that_torch_counts(form, monkeypatch):
    # the counter does not know the in-place product of the cached form: count the definition's
    monkeypatch.setattr(attention_module, "relative_attend", attend)
    mixer, arguments = make_mixer(width=WIDTH, **FORMS[form]), arguments_of(FORMS[form])
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        mixer.eval()(torch.randn(1, FRAMES, WIDTH), Frames.of(torch.tensor([FRAMES]), FRAMES, WIDTH))
    counted = counter.get_total_flops() / 2
    if FORMS[form]["mixer"] == "attention":  # linear_pos, shared over a batch, is left out
        counted -= (2 * FRAMES - 1) * WIDTH * WIDTH
    formula = FRAMES * arguments.macs_per_frame(WIDTH, FRAMES)
    if (
        FORMS[form].get("causal") and "attention" in FORMS[form]["mixer"]
    ):  # counted as half, which torch multiplies out in full
        formula += FRAMES * WIDTH * FRAMES
    if terms := FORMS[form].get("value_terms"):  # the matrices of A v B are made once a batch
        counted -= 3 * terms * WIDTH * arguments.components**2
    assert formula == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize(
    "mixer",
    [
        {"mixer": "attention", "heads": 2},
        {"mixer": "pair", "kind": "geometric", "rank": 5},
        {"mixer": "multivector_attention", "heads": 2, "temperature": "grade", "rotors": True},
        {"mixer": "summary", "hidden": 5},
        {"mixer": "convolution", "kernel": 3},
    ],
    ids=lambda mixer: mixer["mixer"],
)
def test_the_causal_forms_parameters_are_the_modules(mixer):
    module = make_causal_mixer(mixer, WIDTH, 0, 0, blend=False)
    assert arguments_of(mixer, causal=True).parameters(WIDTH) == trainable(module)


@pytest.mark.parametrize("name", [name for name, mixer in MIXERS.items() if mixer.module])
def test_defaults_are_the_modules(name):
    """An argument left out means the same in a configuration and in somebody's own code."""
    taken = inspect.signature(named(MIXERS[name].module)).parameters
    for argument, field in MIXERS[name].arguments.model_fields.items():
        if argument != "mixer":
            default = taken[argument].default
            default = list(default) if isinstance(default, tuple) else default
            assert field.get_default(call_default_factory=True) == default, argument


@pytest.mark.parametrize(
    ("mixer", "words"),
    [
        ({"mixer": "attention", "heads": 3}, ["heads 3", "model.width 64"]),
        ({"mixer": "blocked_attention", "heads": 5}, ["heads 5", "model.width 64"]),
        ({"mixer": "pair", "kind": "signed", "rank": 2}, ["rank 2", "at least 3"]),
        ({"mixer": "multivector_attention", "heads": 3}, ["heads 3", "multiple of 24"]),
        ({"mixer": "multivector_attention", "grades": [0, 4]}, ["grades [0, 4]", "grade 4"]),
        ({"mixer": "multivector_attention", "signature": [1, 1, 0], "rotors": True}, ["rotors", "[1, 1, 0]"]),
        ({"mixer": "multivector_attention", "grades": [1, 3], "value_terms": 1}, ["value_terms 1", "grade 0"]),
    ],
)
def test_arguments_that_no_model_of_the_width_can_have_are_refused_as_the_modules_refuse_them(mixer, words):
    with pytest.raises(UserError) as error:
        arguments_of(mixer).check(64, "model.width")
    assert all(word in str(error.value) for word in words)
    with pytest.raises(UserError):
        make_mixer(width=64, **mixer)


def test_reading_arguments_loads_no_torch():
    code = "import sys, geomix.mixers.registry; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
