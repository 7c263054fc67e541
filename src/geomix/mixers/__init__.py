"""What fits the mixer slot of a block: a module (x (B, T, width), frames) -> (B, T, width), or nothing.

A mixer is a name and arguments, e.g. {"mixer": "pair", "kind": "symmetric"}; a new one of the house is a folder here and a
line of `registry.MIXERS`. The names below are imported when first asked for, so that reading arguments imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geomix.mixers.lazy import lazily

if TYPE_CHECKING:
    from geomix.mixers.attention.module import RelativeAttention
    from geomix.mixers.blocked_attention.module import BlockedAttention
    from geomix.mixers.frames import Frames
    from geomix.mixers.multivector_attention.module import MultivectorAttention
    from geomix.mixers.pair.module import PairMixer
    from geomix.mixers.registry import MIXERS, make_mixer

__getattr__ = lazily(
    __name__,
    {
        "MIXERS": "registry",
        "BlockedAttention": "blocked_attention.module",
        "Frames": "frames",
        "MultivectorAttention": "multivector_attention.module",
        "PairMixer": "pair.module",
        "RelativeAttention": "attention.module",
        "make_mixer": "registry",
    },
)

__all__ = [
    "MIXERS",
    "BlockedAttention",
    "Frames",
    "MultivectorAttention",
    "PairMixer",
    "RelativeAttention",
    "make_mixer",
]
