"""Parameter counts and training FLOPs, by formula: nothing is allocated, nothing is run, and of the house's models no torch is loaded."""

from __future__ import annotations

from typing import Any


def parameter_count(config: Any) -> int:
    """Exact number of trainable parameters of a model's configuration."""
    return config.parameters()


def macs_per_frame(config: Any, frames: int) -> float:
    """Multiply-adds of the forward pass per encoder frame, in utterances of `frames` encoder frames."""
    return config.macs_per_frame(frames)


def train_flops_per_audio_second(config: Any, seconds: float = 12.68) -> float:
    """FLOPs of the matrix products and convolutions of forward and backward, per second of audio.

    Two per multiply-add, three times the forward pass (the input's and the weights' gradients cost one each). Elementwise
    work, norms and `linear_pos` (shared over a batch) are left out, as in the published 6.23 GFLOP of the attention arm.

    Args:
        config: the model.
        seconds: utterance length, which attention's share depends on; 12.68 s (317 frames) is the mean of train-clean-100.
    """
    return 6 * config.frame_rate * config.macs_per_frame(round(config.frame_rate * seconds))
