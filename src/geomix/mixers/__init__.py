"""What fits the mixer slot of a block: a module (x (B, T, width), frames) -> (B, T, width), or nothing.

A mixer is a name and arguments, e.g. {"mixer": "pair", "kind": "symmetric"}; a new one is an entry of `registry.MIXERS` and
of `arguments.ARGUMENTS`. The names below are imported when first asked for, so that reading the arguments imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geomix.mixers.blocked_attention import BlockedAttention
    from geomix.mixers.frames import Frames
    from geomix.mixers.multivector_attention import MultivectorAttention
    from geomix.mixers.pair import PairMixer
    from geomix.mixers.registry import MIXERS, make_mixer
    from geomix.mixers.relative_attention import RelativeAttention

_HOME = {
    "MIXERS": "registry",
    "BlockedAttention": "blocked_attention",
    "Frames": "frames",
    "MultivectorAttention": "multivector_attention",
    "PairMixer": "pair",
    "RelativeAttention": "relative_attention",
    "make_mixer": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


__all__ = [
    "MIXERS",
    "BlockedAttention",
    "Frames",
    "MultivectorAttention",
    "PairMixer",
    "RelativeAttention",
    "make_mixer",
]
