"""SummaryMixing (Parcollet et al. 2023, https://arxiv.org/abs/2307.07421): linear in the length, without pairs of frames."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.errors import UserError
from geomix.mixers.frames import Frames


class SummaryMixing(nn.Module):
    """y_t = c(f(x_t), mean over the utterance of s(x)): equation 2 of the paper, with each of f, s and c a linear map and a GELU.

    As in the authors' code, a LayerNorm follows f and the mean. Causal, the mean runs over the frames up to t alone.

    Args:
        width: model width D.
        hidden: width H of f and s; D by default. Parameters: 2 (D H + H) + 4 H + 2 H D + D, at D = H = 256 263,936.
        causal: a frame reads no later one.
    """

    def __init__(self, width: int, hidden: int | None = None, causal: bool = False) -> None:
        super().__init__()
        hidden = width if hidden is None else hidden
        if hidden < 1:
            raise UserError(f"hidden {hidden} of the summary mixer: give a positive whole number")
        self.causal = causal
        self.local, self.summary = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.local_norm, self.summary_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.join = nn.Linear(2 * hidden, width)

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        """(B, T, width) to (B, T, width); padded frames influence no real one as long as they are finite."""
        frames.check(x)
        real = frames.mask.unsqueeze(-1)
        local = self.local_norm(F.gelu(self.local(x)))
        parts = torch.where(real, F.gelu(self.summary(x)), 0.0)
        if self.causal:
            count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=parts.dtype).unsqueeze(-1)
            mean = parts.cumsum(1) / count
        else:
            mean = parts.sum(1, keepdim=True) / frames.lengths.clamp_min(1).view(-1, 1, 1).to(parts.dtype)
        # the joining map's two halves apart: the summary's is taken once an utterance
        hidden = local.shape[-1]
        summary = F.linear(self.summary_norm(mean), self.join.weight[:, hidden:])
        return F.gelu(F.linear(local, self.join.weight[:, :hidden], self.join.bias) + summary)
