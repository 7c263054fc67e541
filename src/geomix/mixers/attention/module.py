"""Multi-head self-attention with relative positions, parameter for parameter as ESPnet's (`rel_pos_type: latest`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geomix.errors import UserError
from geomix.kernels.relative_attention import relative_attend
from geomix.mixers.frames import Frames


class RelativeAttention(nn.Module):
    """Transformer-XL attention ([Dai2019], section 3.3) as in ESPnet's RelPositionMultiHeadedAttention.

    score[i, j] = ((q_i + u) . k_j + (q_i + v) . p_{i-j}) / sqrt(d); four linear maps with bias, `linear_pos` without, and
    the biases u and v: 329,216 parameters at width 256 with 4 heads. Padded keys get no weight: what stands there never matters
    as long as it is finite.

    Args:
        width: model width, a multiple of `heads`.
        heads: number of heads.
        dropout: on the attention weights.
    """

    needs_positions = True
    """Whether the frames must carry their relative positions."""

    def __init__(self, width: int, heads: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise UserError(f"heads {heads} of the attention mixer: it must divide the width {width}")
        self.heads, self.dropout = heads, dropout
        self.linear_q = nn.Linear(width, width)
        self.linear_k = nn.Linear(width, width)
        self.linear_v = nn.Linear(width, width)
        self.linear_out = nn.Linear(width, width)
        self.linear_pos = nn.Linear(width, width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(heads, width // heads))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, width // heads))
        nn.init.xavier_uniform_(self.pos_bias_u)
        nn.init.xavier_uniform_(self.pos_bias_v)

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        """(B, T, width) to (B, T, width); `frames.positions` is (1, 2 T - 1, width)."""
        if frames.positions is None:
            raise ValueError("RelativeAttention needs positions: make the frames with Frames.of(..., width=width)")
        frames.check(x)
        batch, length, width = x.shape
        split = lambda y: y.unflatten(-1, (self.heads, width // self.heads))
        mixed = relative_attend(
            split(self.linear_q(x)),
            split(self.linear_k(x)),
            split(self.linear_v(x)),
            split(self.linear_pos(frames.positions.to(x.dtype)))[0],
            self.pos_bias_u,
            self.pos_bias_v,
            frames.lengths,
            self.dropout if self.training else 0.0,
        )
        return self.linear_out(mixed.reshape(batch, length, width))
