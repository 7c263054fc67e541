"""Lengths behind the convolutional front end."""

from __future__ import annotations

CONVOLUTIONS = {4: 2, 8: 3}
"""Subsampling -> convolutions of stride 2."""

SUBSAMPLINGS = tuple(CONVOLUTIONS)


def subsampled_length(frames, subsampling: int = 4):
    """Encoder frames of `frames` log-mel frames (an int or an integer tensor), padding never counted.

    One unpadded convolution of kernel 3 and stride 2 gives (t - 1) // 2; conv2d has two, ((t - 1) // 2 - 1) // 2, as ESPnet
    counts since espnet#6633; conv2d8 has three. Never below 0.
    """
    for _ in range(CONVOLUTIONS[subsampling]):
        frames = (frames - 1) // 2
    return max(frames, 0) if isinstance(frames, int) else frames.clip(0)


def shortest(subsampling: int) -> int:
    """Fewest log-mel frames that give one encoder frame: 7 for conv2d, 15 for conv2d8."""
    frames = 1
    for _ in range(CONVOLUTIONS[subsampling]):
        frames = 2 * frames + 1
    return frames
