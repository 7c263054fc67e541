"""The mixers by name, and the one function that makes a mixer of a block."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from geomix.errors import UserError
from geomix.mixers.blocked_attention import BlockedAttention
from geomix.mixers.multivector_attention import MultivectorAttention
from geomix.mixers.pair import PairMixer
from geomix.mixers.relative_attention import RelativeAttention

# name -> class; None leaves the slot empty. A class takes `width`, then its own arguments, and those of `block`, `seed` and
# `dropout` that it names.
MIXERS: dict[str, Callable[..., nn.Module] | None] = {
    "attention": RelativeAttention,
    "blocked_attention": BlockedAttention,
    "multivector_attention": MultivectorAttention,
    "pair": PairMixer,
    "none": None,
}


def make_mixer(
    mixer: str, width: int, *, block: int = 0, seed: int = 0, dropout: float = 0.0, **arguments: Any
) -> nn.Module | None:
    """The mixer of one block.

    Args:
        mixer: a name of `MIXERS`.
        width: model width.
        block: index of the block, for mixers that differ from block to block.
        seed: of tables that are drawn (the signed pair product).
        dropout: of the attention weights.
        arguments: the mixer's own arguments.

    Raises:
        UserError: an unknown mixer or argument, named.
    """
    if mixer not in MIXERS:
        raise UserError(f"mixer {mixer!r} is not known: choose one of {', '.join(MIXERS)}")
    factory = MIXERS[mixer]
    given = {"block": block, "seed": seed, "dropout": dropout}
    known = list(inspect.signature(factory).parameters)[1:] if factory is not None else []
    for name in arguments:
        if name not in known or name in given:
            own = [n for n in known if n not in given]
            raise UserError(f"argument {name!r} of mixer {mixer!r} is not known: it takes {', '.join(own) or 'none'}")
    if factory is None:
        return None
    return factory(width, **{n: v for n, v in given.items() if n in known}, **arguments)
