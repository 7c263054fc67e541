"""A tiny instance of each mixer of the house, in the forms that the shipped configurations use."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from geomix.mixers import Frames, make_mixer
from geomix.mixers.registry import MIXERS
from tests.golden.store import FOLDER, Case, Values, figures

FILE = FOLDER / "mixers.json"
WIDTH, LENGTHS = 8, (13, 6)

_PAIR: dict[str, dict[str, Any]] = {
    "pair, wedge": {},
    "pair, symmetric": {"kind": "symmetric"},
    "pair, signed": {"kind": "signed"},
    "pair, geometric": {"kind": "geometric"},
    "pair, wedge, causal": {"two_sided": False},
    "pair, symmetric, causal": {"kind": "symmetric", "two_sided": False},
    "pair, signed, causal": {"kind": "signed", "two_sided": False},
    "pair, wedge, one offset per block": {"one_offset_per_block": True},
    "pair, wedge, causal, one offset per block": {"two_sided": False, "one_offset_per_block": True},
    "pair, wedge, paper form": {"form": "paper"},
    "pair, wedge, causal, paper form": {"form": "paper", "two_sided": False},
    "pair, wedge, bias where empty": {"empty": "bias"},
    # as the language model's blocks of norm: post have it
    "pair, wedge, causal, blend": {"two_sided": False, "blend": True},
    "pair, gate bias, sum": {"gate_bias": 2.0, "pool": "sum"},
    "pair, gate add, length kept": {"gate": "add", "normalise": False},
    "pair, no gate": {"gate": "none"},
    "pair, symmetric, gate add": {"kind": "symmetric", "gate": "add"},
    "pair, symmetric, no gate": {"kind": "symmetric", "gate": "none"},
    "pair, a map for each side": {"weights": "side"},
    "pair, a map for each offset": {"weights": "offset"},
    "pair, a map for each offset, causal": {"weights": "offset", "two_sided": False},
    "pair, learned signs": {"signs": "learned", "signs_start": 0.0},
    "pair, learned signs, paper form": {"signs": "learned", "signs_start": 1.0, "form": "paper"},
}
_MULTIVECTOR: dict[str, dict[str, Any]] = {
    "multivector_attention": {"heads": 2, "signature": [2, 0, 0]},
    "multivector_attention, causal, a temperature a grade": {
        "heads": 1, "signature": [2, 1, 0], "grades": [0, 1], "temperature": "grade", "causal": True,
    },
    "multivector_attention, dot, rotors, values": {
        "heads": 1, "temperature": "dot", "rotors": True, "value_terms": 2,
    },
}  # fmt: skip
INSTANCES: dict[str, dict[str, Any]] = {
    "attention": {"mixer": "attention", "heads": 2},
    "blocked_attention": {"mixer": "blocked_attention", "heads": 2, "context": 4},
    "summary": {"mixer": "summary"},
    "summary, causal": {"mixer": "summary", "causal": True},
    "convolution": {"mixer": "convolution", "kernel": 5},
    "convolution, causal": {"mixer": "convolution", "kernel": 5, "causal": True},
    "fourier": {"mixer": "fourier"},
    **{name: {"mixer": "multivector_attention", **arguments} for name, arguments in _MULTIVECTOR.items()},
    **{name: {"mixer": "pair", "rank": 5, "offsets": [1, 2, 4], **arguments} for name, arguments in _PAIR.items()},
}
"""Case -> the arguments of its mixer. An empty slot (`none`) computes nothing."""


@contextlib.contextmanager
def exact(seed: int = 0) -> Iterator[None]:
    """float64 throughout, drawn from a seed: in it all processors agree to far more digits than a change of the code leaves."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


def unsettled(module: nn.Module) -> nn.Module:
    """The module with noise on every parameter: a weight that starts at 1 and a bias at 0 would hide what is made of them."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return module


def gradients(loss: Tensor, module: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """Gradients of a loss, of the inputs and of every parameter."""
    wanted = [*inputs, *(p for p in module.parameters() if p.requires_grad)]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [torch.zeros_like(x) if grad is None else grad for x, grad in zip(wanted, found, strict=True)]


def ragged_input() -> tuple[Tensor, Frames]:
    """Two sequences of 13 and 6 frames, something in the padding, two frames of the first nearly parallel."""
    x = torch.randn(2, max(LENGTHS), WIDTH)
    x[0, 4] = x[0, 3] + 1e-4 * torch.randn(WIDTH)  # a thin pair, below min_sine
    return x, Frames.of(torch.tensor(LENGTHS), max(LENGTHS), WIDTH, dtype=torch.float64)


def compute(arguments: dict[str, Any]) -> Values:
    """Output on the real frames in eval mode, and the gradient of its mean square in train mode, without dropout."""
    with exact():
        module = unsettled(make_mixer(width=WIDTH, block=1, seed=3, **arguments))
        x, frames = ragged_input()
        with torch.no_grad():
            output = module.eval()(x, frames)[frames.mask]
        x.requires_grad_()
        loss = module.train()(x, frames)[frames.mask].square().mean()
        return {"output": figures(output), "gradient": figures(*gradients(loss, module, x))}


CASES = [
    Case(name, arguments["mixer"], MIXERS[arguments["mixer"]].arguments.version, functools.partial(compute, arguments))
    for name, arguments in INSTANCES.items()
]
