"""SpecAugment as ESPnet applies it: on the raw log-mel, before normalisation, masks filled with 0.0.

Sources: [Park2019] as implemented in
https://github.com/espnet/espnet/tree/master/espnet2/layers (time_warp.py, mask_along_axis.py) and
espnet2/asr/specaug/specaug.py.

Everything is drawn on the CPU from one generator (the same draws on every device) and applied to the whole batch at
once; as in ESPnet, each utterance has its own warp inside its own length, unless all lengths of the batch are equal:
then one warp serves all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

# cubic convolution's parameter as torch.nn.functional.interpolate(mode="bicubic") has it
_A = -0.75


@dataclass(frozen=True)
class SpecAugment:
    """Time warp, frequency masks, time masks, in that order.

    time_warp : window in frames; utterances of at most twice as many frames are not warped; 0 is off.
    frequency_masks, frequency_width : number of masks and exclusive upper bound of their width in bands (27: widths 0
        to 26).
    time_masks, time_ratio : number of masks, and the exclusive upper bound of their width as a share of the padded
        length, rounded down.
    """

    time_warp: int = 5
    frequency_masks: int = 2
    frequency_width: int = 27
    time_masks: int = 5
    time_ratio: float = 0.05

    def __call__(self, features: torch.Tensor, lengths: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Augment log-mel `features` (B, T, bands), on any device; `lengths` (B,) and `generator` are on the CPU.

        Returns a new tensor; lengths do not change, and padding never enters an utterance (nor the reverse) by warping.
        """
        batch, time, bands = features.shape
        if self.time_warp:
            centre, warped = draw_warp(lengths, self.time_warp, generator)
            features = warp_time(
                features, *(v.to(features.device, non_blocking=True) for v in (lengths, centre, warped))
            )
        masked = draw_masks(batch, bands, self.frequency_width, self.frequency_masks, generator)[:, None, :]
        masked = (
            masked | draw_masks(batch, time, math.floor(time * self.time_ratio), self.time_masks, generator)[:, :, None]
        )
        return features.masked_fill(masked.to(features.device, non_blocking=True), 0.0)


def draw_warp(lengths: torch.Tensor, window: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each utterance is warped: frame `centre` moves to `warped` -> two (B,) tensors on the CPU.

    centre is uniform in [window, t - window), warped in (centre - window, centre + window]; both are t / 2 for t <= 2
    window, where nothing moves.
    """
    draws = torch.rand(2, len(lengths), generator=generator, dtype=torch.float64)
    centre = window + (draws[0] * (lengths - 2 * window)).long()
    warped = centre - window + 1 + (draws[1] * 2 * window).long()
    if bool((lengths == lengths[0]).all()):
        centre, warped = centre[:1].expand_as(lengths), warped[:1].expand_as(lengths)
    short = lengths <= 2 * window
    half = lengths // 2
    return torch.where(short, half, centre), torch.where(short, half, warped)


def warp_time(
    features: torch.Tensor, lengths: torch.Tensor, centre: torch.Tensor, warped: torch.Tensor
) -> torch.Tensor:
    """Stretch [0, centre) to [0, warped) and [centre, length) to [warped, length), bicubic in time.

    The value of torch's bicubic interpolate (align_corners False) on each side of each utterance, without a loop over
    utterances.

    Parameters
    ----------
    features : (B, T, bands)
    lengths, centre, warped : (B,) integers on the same device; where centre = warped the utterance is returned as it is

    Returns
    -------
    (B, T, bands); frames at and beyond a length are those of `features`.
    """
    batch, time, bands = features.shape
    lengths, centre, warped = (v[:, None] for v in (lengths, centre, warped))
    frame = torch.arange(time, device=features.device)[None]
    right = frame >= warped
    # source range [first, last] of the side that each output frame lies in, and how much its frames are spread
    first = torch.where(right, centre, 0)
    last = torch.where(right, lengths, centre) - 1
    scale = (last + 1 - first).float() / torch.where(right, lengths - warped, warped).clamp(min=1).float()
    within = frame - torch.where(right, warped, 0)
    source = scale * (within + 0.5) - 0.5
    below = source.floor()
    t = source - below
    below = below.long()
    outside = frame >= lengths
    result = torch.zeros_like(features)
    for tap, weight in zip(range(-1, 3), _cubic(t), strict=True):
        index = (first + below + tap).clamp(first, last)
        index = torch.where(outside, frame, index).clamp(0, time - 1)
        weight = torch.where(outside, float(tap == 0), weight).to(features.dtype)
        result.addcmul_(features.gather(1, index[:, :, None].expand(batch, time, bands)), weight[:, :, None])
    return result


def _cubic(t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Weights of the frames -1, 0, 1, 2 around a point at `t` in [0, 1) after frame 0 (Keys' cubic convolution)."""

    def near(x: torch.Tensor) -> torch.Tensor:
        return ((_A + 2) * x - (_A + 3)) * x * x + 1

    def far(x: torch.Tensor) -> torch.Tensor:
        return ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A

    return far(t + 1), near(t), near(1 - t), far(2 - t)


def draw_masks(batch: int, size: int, width: int, masks: int, generator: torch.Generator) -> torch.Tensor:
    """Union of `masks` masks for each utterance -> (B, size) bool on the CPU, True where masked.

    Widths are uniform in [0, width), one draw a mask; positions uniform in [0, max(1, size - widest of the batch)), as
    in ESPnet.
    """
    if width < 1 or masks < 1:
        return torch.zeros(batch, size, dtype=torch.bool)
    widths = torch.randint(0, width, (batch, masks, 1), generator=generator)
    starts = torch.randint(0, max(1, size - int(widths.max())), (batch, masks, 1), generator=generator)
    position = torch.arange(size)
    return ((starts <= position) & (position < starts + widths)).any(1)
