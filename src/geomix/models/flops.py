"""Parameter counts and training FLOPs, by formula: nothing is allocated and nothing is run."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import torch

from geomix.mixers import PairMixer, RelativeAttention
from geomix.models.architectures import model_config
from geomix.models.conformer import ConformerConfig


def parameter_count(config: Any) -> int:
    """Exact number of trainable parameters."""
    return sum(p.numel() for p in _meta_model(config).parameters())


def train_flops_per_audio_second(config: Any, seconds: float = 12.68) -> float:
    """FLOPs of the matrix products and convolutions of forward and backward, per second of audio.

    Two per multiply-add, three times the forward pass (the input's and the weights' gradients cost one each). Elementwise
    work, norms and `linear_pos` (shared over a batch) are left out, as in the published 6.23 GFLOP of the attention arm.

    Args:
        config: the model.
        seconds: utterance length, which attention's share depends on; 12.68 s (317 frames) is the mean of train-clean-100.
    """
    frames = round(config.frame_rate * seconds)
    macs = macs_per_frame(config, frames) if isinstance(config, ConformerConfig) else config.macs_per_frame(frames)
    return 6 * config.frame_rate * macs


def macs_per_frame(config: ConformerConfig, frames: int) -> float:
    """Multiply-adds of the forward pass per encoder frame, in utterances of `frames` encoder frames."""
    width, model = config.width, _meta_model(config)
    macs = width * config.vocab + model.embed.out.weight.numel()
    rows, bins = config.subsampling, config.features
    for conv in model.embed.conv:
        rows, bins = rows // 2, (bins - 1) // 2  # rows: frames of this layer per encoder frame
        macs += rows * bins * conv.weight.numel()
    for block in model.blocks:
        macs += 2 * 2 * width * config.ff_dim
        macs += 3 * width * width + config.kernel * width
        macs += mixer_macs_per_frame(block.mixer, width, frames)
    inter = config.intermediate_ctc
    if inter is not None:
        macs += len(inter.blocks) * width * config.vocab * (2 if inter.self_conditioning else 1)
    return macs


def mixer_macs_per_frame(mixer, width: int, frames: int) -> float:
    """Multiply-adds per frame of one mixer: its linear maps and, for attention, the products with keys, positions, values."""
    if mixer is None:
        return 0
    if isinstance(mixer, RelativeAttention):
        return 4 * width * width + width * (frames + (2 * frames - 1) + frames)
    if isinstance(mixer, PairMixer):
        vectors = 1 if mixer.form == "anchored" else len(mixer.offsets) * (2 if mixer.two_sided else 1)
        return mixer.reduce.weight.numel() + vectors * mixer.project.weight.numel() + mixer.gate.weight.numel()
    if hasattr(mixer, "macs_per_frame"):
        return mixer.macs_per_frame(frames)
    raise ValueError(f"no FLOP formula for {type(mixer).__name__}: give it a method macs_per_frame(frames)")


def _meta_model(config: Any) -> torch.nn.Module:
    return _meta_model_of(json.dumps(config.to_dict(), sort_keys=True))


@lru_cache(maxsize=32)
def _meta_model_of(config: str) -> torch.nn.Module:
    with torch.device("meta"):
        return model_config(json.loads(config)).build()
