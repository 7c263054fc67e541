"""What the blocks of an encoder share about a padded batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True)
class Frames:
    """Lengths, mask and relative positions of a padded batch: made once a batch, read by every block.

    Attributes:
        lengths: (B,) int64 number of real frames.
        mask: (B, T) bool, True where a frame is real.
        positions: (1, 2 T - 1, width) encodings of the distances T - 1, ..., 0, ..., -(T - 1), or None.
    """

    lengths: Tensor
    mask: Tensor
    positions: Tensor | None = None

    @classmethod
    def of(
        cls,
        lengths: Tensor,
        max_len: int,
        width: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Frames:
        """Frames of a batch of `lengths` (B,), integers, padded to `max_len`; with positions when `width` is given.

        Raises ValueError for lengths of another shape or type and, where reading them stalls no device, outside 0..max_len.
        """
        if lengths.dim() != 1 or lengths.dtype not in INTEGERS:
            raise ValueError(
                f"lengths of shape {tuple(lengths.shape)} and type {lengths.dtype}: give one integer for each utterance"
            )
        if lengths.device.type == "cpu" and not torch.compiler.is_compiling():
            known = lengths.tolist()
            if known and not 0 <= min(known) <= max(known) <= max_len:
                raise ValueError(
                    f"lengths {min(known)} to {max(known)} of a batch padded to {max_len}: give 0 to {max_len}"
                )
        with torch.inference_mode(False):  # frames may serve a training later
            lengths = lengths.to(device=device, dtype=torch.int64, copy=True)
            mask = torch.arange(max_len, device=lengths.device) < lengths.unsqueeze(1)
            positions = None if width is None else relative_positions(max_len, width, lengths.device, dtype)
        return cls(lengths, mask, positions)

    def check(self, x: Tensor) -> None:
        """ValueError unless these are the frames of x (B, T, width)."""
        if x.shape[:2] != self.mask.shape:
            raise ValueError(
                f"frames of shape {tuple(self.mask.shape)} do not fit an input of shape {tuple(x.shape)}: make them with "
                "Frames.of(lengths, x.shape[1]), one length for each utterance"
            )


def relative_positions(frames: int, width: int, device=None, dtype: torch.dtype = torch.float32) -> Tensor:
    """Sinusoids of the distances T - 1 down to -(T - 1), query minus key: (1, 2 T - 1, width).

    As ESPnet's RelPositionalEncoding (`rel_pos_type: latest`) and Transformer-XL, appendix B: even columns hold
    sin(distance / 10000^(column / width)), odd ones the cosine. Computed in fp32, as ESPnet does; float64 on request.
    """
    precise = torch.promote_types(dtype, torch.float32)
    distance = torch.arange(frames - 1, -frames, -1, device=device, dtype=precise).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2, device=device, dtype=precise) * -(math.log(10000.0) / width))
    angle = distance * rate
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[None, :, :width].to(dtype)
