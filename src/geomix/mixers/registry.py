"""The mixers of the house by name, and the one function that makes a mixer of a block. Nothing here imports torch before that."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from geomix.errors import UserError
from geomix.mixers.attention.arguments import Attention, CausalAttention
from geomix.mixers.base import Arguments, Size
from geomix.mixers.blocked_attention.arguments import BlockedAttention
from geomix.mixers.convolution.arguments import CausalConvolution, Convolution
from geomix.mixers.fourier.arguments import Fourier
from geomix.mixers.lazy import named
from geomix.mixers.multivector_attention.arguments import CausalMultivectorAttention, MultivectorAttention
from geomix.mixers.none.arguments import NoMixer
from geomix.mixers.own.source import is_own
from geomix.mixers.pair.arguments import CausalPair, Pair
from geomix.mixers.summary.arguments import CausalSummary, Summary

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Mixer:
    """A mixer of the house.

    arguments : what a configuration may say of it in the Conformer
    module : `package.module:Class`, imported when the first one is made; None leaves the slot empty. The class takes the width,
        then its own arguments, and those of `block`, `seed` and `dropout` that it names.
    causal : what a configuration may say of it in the language model; None: it has no causal form
    """

    arguments: type[Arguments]
    module: str | None
    causal: type[Arguments] | None = None


MIXERS: dict[str, Mixer] = {
    "attention": Mixer(Attention, "geomix.mixers.attention.module:RelativeAttention", CausalAttention),
    "blocked_attention": Mixer(BlockedAttention, "geomix.mixers.blocked_attention.module:BlockedAttention"),
    "multivector_attention": Mixer(
        MultivectorAttention,
        "geomix.mixers.multivector_attention.module:MultivectorAttention",
        CausalMultivectorAttention,
    ),
    "pair": Mixer(Pair, "geomix.mixers.pair.module:PairMixer", CausalPair),
    "summary": Mixer(Summary, "geomix.mixers.summary.module:SummaryMixing", CausalSummary),
    "convolution": Mixer(Convolution, "geomix.mixers.convolution.module:ConvolutionMixer", CausalConvolution),
    "fourier": Mixer(Fourier, "geomix.mixers.fourier.module:FourierMixer"),
    "none": Mixer(NoMixer, None),
}
"""A mixer of the house is a folder here, `arguments.py` and `module.py`, and its line in this dictionary."""


def arguments_of(mixer: Mapping[str, Any], *, causal: bool = False) -> Arguments:
    """The arguments of `{"mixer": name, ...}` with every default filled in; what the mixer's arguments do not name is ignored.

    causal : those of its form in the language model. A mixer or value that is not known is a `UserError`.
    """
    entry = entry_of(mixer["mixer"])
    kind = entry.causal if causal else entry.arguments
    if kind is None:
        raise UserError(f"mixer {mixer['mixer']!r} has no causal form: choose {' or '.join(causal_mixers())}")
    own = {key: _plain(value) for key, value in mixer.items() if key in kind.model_fields}
    try:
        return kind(**own)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise UserError(f"{where} {fault['input']!r} of mixer {mixer['mixer']!r}: {fault['msg']}") from None


def entry_of(name: str) -> Mixer:
    """The mixer of this name; `UserError` for one that is not of the house."""
    if name not in MIXERS:
        raise UserError(f"mixer {name!r} is not known: choose one of {', '.join(MIXERS)}")
    return MIXERS[name]


def sizes_of(mixer: Mapping[str, Any], width: int, blocks: int, seed: int = 0) -> list[Size]:
    """Size of the mixer of each block of a model; one of a user's own is made for that, with torch."""
    if is_own(mixer["mixer"]):
        from geomix.mixers.own.module import sizes

        return sizes(mixer, width, blocks, seed)
    arguments = arguments_of(mixer)
    size = Size(arguments.parameters(width), functools.partial(arguments.macs_per_frame, width))
    return [size] * blocks


def causal_mixers() -> list[str]:
    """Names of the mixers that a language model can have."""
    return [name for name, mixer in MIXERS.items() if mixer.causal]


def make_mixer(
    mixer: str, width: int, *, block: int = 0, seed: int = 0, dropout: float = 0.0, **arguments: Any
) -> nn.Module | None:
    """The mixer of one block.

    Args:
        mixer: a name of `MIXERS`, or a user's own, `path/to/file.py:Class` or `package.module:Class`.
        width: model width.
        block: index of the block, for mixers that differ from block to block.
        seed: of tables that are drawn (the signed pair product).
        dropout: of the attention weights.
        arguments: the mixer's own arguments.

    Raises:
        UserError: an unknown mixer or argument, named.
    """
    if is_own(mixer):
        from geomix.mixers.own.module import make

        return make({"mixer": mixer, **arguments}, width, block=block, seed=seed, dropout=dropout)
    place = entry_of(mixer).module
    factory = named(place) if place else None
    given = {"block": block, "seed": seed, "dropout": dropout}
    known = list(inspect.signature(factory).parameters)[1:] if factory is not None else []
    for name in arguments:
        if name not in known or name in given:
            own = [n for n in known if n not in given]
            raise UserError(f"argument {name!r} of mixer {mixer!r} is not known: it takes {', '.join(own) or 'none'}")
    arguments_of({"mixer": mixer, **arguments})  # their types
    if factory is None:
        return None
    return factory(width, **{n: v for n, v in given.items() if n in known}, **arguments)


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
