"""FNet (Lee-Thorp et al. 2021, https://arxiv.org/abs/2105.03824): mixing by Fourier transforms, without a parameter."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geomix.mixers.frames import Frames


class FourierMixer(nn.Module):
    """y = Re(F_time(F_width(x))), section 3.2 of the paper, over each utterance's own length; padded frames give 0.

    Both transforms are divided by the square root of their length, which keeps numbers of size 1 there: FNet normalises the
    sum x + F(x), which takes any scale, and a block that normalises before the mixer does not. In at least fp32 whatever
    autocast says. Every frame reads every other, so there is no causal form.

    Args:
        width: model width D; no parameters.
    """

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        """(B, T, width) to (B, T, width); padded frames influence no real one."""
        frames.check(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        rows = []
        for row, length in zip(wide, frames.lengths.tolist(), strict=True):
            mixed = torch.fft.fft2(row[:length], norm="ortho").real if length else row[:0]
            rows.append(torch.nn.functional.pad(mixed, (0, 0, 0, len(row) - length)))
        return torch.stack(rows).to(x.dtype) if rows else torch.zeros_like(x)
