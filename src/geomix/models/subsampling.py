"""The convolutional front end: log-mel frames to encoder frames, 4 or 8 times fewer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def subsampled_length(frames, subsampling: int = 4):
    """Encoder frames of `frames` log-mel frames (an int or an integer tensor), padding never counted.

    One unpadded convolution of kernel 3 and stride 2 gives (t - 1) // 2; conv2d has two, ((t - 1) // 2 - 1) // 2, as ESPnet
    counts since espnet#6633; conv2d8 has three. At most 0 is returned for an utterance that is too short.
    """
    for _ in range(_CONVOLUTIONS[subsampling]):
        frames = (frames - 1) // 2
    return frames.clamp_min(0) if isinstance(frames, Tensor) else max(frames, 0)


def shortest(subsampling: int) -> int:
    """Fewest log-mel frames that give one encoder frame: 7 for conv2d, 15 for conv2d8."""
    frames = 1
    for _ in range(_CONVOLUTIONS[subsampling]):
        frames = 2 * frames + 1
    return frames


_CONVOLUTIONS = {4: 2, 8: 3}
SUBSAMPLINGS = tuple(_CONVOLUTIONS)


class Conv2dSubsampling(nn.Module):
    """ESPnet's conv2d (subsampling 4) and conv2d8 (8) front ends: 3 x 3 convolutions of stride 2 with ReLU, then a linear map.

    Args:
        features: log-mel bins.
        width: channels of every convolution, and of the output.
        subsampling: 4 or 8.
    """

    def __init__(self, features: int, width: int, subsampling: int = 4) -> None:
        super().__init__()
        count = _CONVOLUTIONS[subsampling]
        self.conv = nn.ModuleList(nn.Conv2d(1 if n == 0 else width, width, 3, 2) for n in range(count))
        self.out = nn.Linear(width * subsampled_length(features, subsampling), width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, features) to (B, subsampled_length(T), width); a real output frame reads real input frames only."""
        x = x.unsqueeze(1).to(memory_format=torch.channels_last)
        for conv in self.conv:
            x = F.relu(conv(x), inplace=True)
        # `out` reads channel-major columns, as ESPnet's; the activations stay channels-last, so its weight is turned instead
        batch, channels, frames, bins = x.shape
        weight = self.out.weight.view(-1, channels, bins).transpose(1, 2).flatten(1)
        return F.linear(x.permute(0, 2, 3, 1).reshape(batch, frames, bins * channels), weight, self.out.bias)
