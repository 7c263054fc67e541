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
    from geomix.mixers.convolution.module import ConvolutionMixer
    from geomix.mixers.fourier.module import FourierMixer
    from geomix.mixers.frames import Frames
    from geomix.mixers.multivector_attention.module import MultivectorAttention
    from geomix.mixers.pair.module import PairMixer
    from geomix.mixers.registry import MIXERS, make_mixer
    from geomix.mixers.summary.module import SummaryMixing

__getattr__ = lazily(
    __name__,
    {
        "MIXERS": "registry",
        "BlockedAttention": "blocked_attention.module",
        "ConvolutionMixer": "convolution.module",
        "FourierMixer": "fourier.module",
        "Frames": "frames",
        "MultivectorAttention": "multivector_attention.module",
        "PairMixer": "pair.module",
        "RelativeAttention": "attention.module",
        "SummaryMixing": "summary.module",
        "make_mixer": "registry",
    },
)

__all__ = [
    "MIXERS",
    "BlockedAttention",
    "ConvolutionMixer",
    "FourierMixer",
    "Frames",
    "MultivectorAttention",
    "PairMixer",
    "RelativeAttention",
    "SummaryMixing",
    "make_mixer",
]
