"""The conformer of Granite Speech: blocked attention, half feed-forwards, self-conditioned CTC.

Parameter and buffer names are those of the published 3.3 files, so that a state dict is a checkpoint.
Sources: GraniteSpeechCTCEncoder of transformers 4.57.1; self-conditioning: Nozaki and Komatsu 2021,
https://arxiv.org/abs/2104.02724.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geomix.mixers.blocked_attention import blocked_attention
from geomix.models.granite.config import EncoderConfig


class FeedForward(nn.Module):
    """LayerNorm, Linear to `mult` times the width, SiLU, Linear back."""

    def __init__(self, width: int, mult: int, dropout: float) -> None:
        super().__init__()
        self.pre_norm = nn.LayerNorm(width)
        self.up_proj = nn.Linear(width, width * mult)
        self.down_proj = nn.Linear(width * mult, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.silu(self.up_proj(self.pre_norm(x)), inplace=not torch.is_grad_enabled())
        return self.dropout(self.down_proj(self.dropout(inner)))


class Attention(nn.Module):
    """Blocked self-attention; distances index a table of 2 * max_pos_emb + 1 vectors around its centre."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        inner = config.num_heads * config.dim_head
        self.heads, self.context, self.centre = config.num_heads, config.context_size, config.max_pos_emb
        self.pre_norm = nn.LayerNorm(config.hidden_dim)
        self.to_q = nn.Linear(config.hidden_dim, inner, bias=False)
        self.to_kv = nn.Linear(config.hidden_dim, 2 * inner, bias=False)
        self.to_out = nn.Linear(inner, config.hidden_dim)
        self.rel_pos_emb = nn.Embedding(2 * config.max_pos_emb + 1, config.dim_head)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.pre_norm(x)
        q = self.to_q(x)
        k, v = self.to_kv(x).chunk(2, dim=-1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)) for y in (q, k, v))
        positions = self.rel_pos_emb.weight[self.centre - self.context + 1 : self.centre + self.context]
        return self.dropout(self.to_out(blocked_attention(q, k, v, positions, context=self.context, mask=mask)))


class DepthwiseConv(nn.Module):
    """Depthwise convolution over time, (batch, time, channels); keeps the length, an even kernel looks one frame further back."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.conv.kernel_size[0]
        # one row of a channels-last image: (batch, time, channels) is its memory layout already
        image = x.transpose(1, 2).unsqueeze(2)
        y = F.conv2d(image, self.conv.weight.unsqueeze(2), padding=(0, kernel // 2), groups=self.conv.groups)
        return y.squeeze(2).transpose(1, 2)[:, : x.shape[1]]


class Convolution(nn.Module):
    """LayerNorm, pointwise, GLU, depthwise, BatchNorm, SiLU, pointwise. The pointwise ones are 1x1 Conv1d by shape only."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        inner = config.hidden_dim * config.conv_expansion_factor
        self.norm = nn.LayerNorm(config.hidden_dim)
        self.up_conv = nn.Conv1d(config.hidden_dim, 2 * inner, 1)
        self.depth_conv = DepthwiseConv(inner, config.conv_kernel_size)
        self.batch_norm = nn.BatchNorm1d(inner)
        self.down_conv = nn.Conv1d(inner, config.hidden_dim, 1)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = F.glu(F.linear(self.norm(x), self.up_conv.weight.squeeze(-1), self.up_conv.bias), dim=-1)
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0)
        x = self.depth_conv(x)
        if mask is not None and self.training:  # statistics of real frames only
            x = torch.zeros_like(x).masked_scatter(mask.unsqueeze(-1), self.batch_norm(x[mask]))
        else:
            x = self.batch_norm(x.flatten(0, 1)).view_as(x)
        x = F.silu(x, inplace=not torch.is_grad_enabled())
        return self.dropout(F.linear(x, self.down_conv.weight.squeeze(-1), self.down_conv.bias))


class Block(nn.Module):
    """Half feed-forward, attention, convolution, half feed-forward, LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.ff1 = FeedForward(config.hidden_dim, config.feedforward_mult, config.dropout)
        self.attn = Attention(config)
        self.conv = Convolution(config)
        self.ff2 = FeedForward(config.hidden_dim, config.feedforward_mult, config.dropout)
        self.post_norm = nn.LayerNorm(config.hidden_dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = torch.add(x, self.ff1(x), alpha=0.5)
        x = x + self.attn(x, mask)
        x = x + self.conv(x, mask)
        x = torch.add(x, self.ff2(x), alpha=0.5)
        return self.post_norm(x)


class GraniteEncoder(nn.Module):
    """Stacked log-mel frames to hidden states, with one CTC head `out` used in the middle and at the end."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.input_linear = nn.Linear(config.input_dim, config.hidden_dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.out = nn.Linear(config.hidden_dim, config.output_dim)
        self.out_mid = nn.Linear(config.output_dim, config.hidden_dim)

    def forward(self, features: Tensor, lengths: Tensor | None = None, *, masked: bool = True) -> Tensor:
        """features (batch, T, input_dim), lengths (batch,) in frames -> hidden states (batch, T, hidden_dim), zero beyond a length.

        Without lengths all frames are real. `masked=False` ignores the lengths, as transformers does: a shorter item
        then depends on its padding.
        """
        return self.encode(features, lengths if masked else None)[0]

    def encode(self, features: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """As `forward`, with the CTC logits (batch, T, output_dim) of the middle block (None for a single block)."""
        mask, middle = None, None
        _check_lengths(features, lengths)
        if lengths is not None and not bool((lengths == features.shape[1]).all()):
            mask = torch.arange(features.shape[1], device=features.device) < lengths.to(features.device)[:, None]
            features = features.masked_fill(~mask.unsqueeze(-1), 0)
        x = self.input_linear(features)
        for index, layer in enumerate(self.layers, start=1):
            x = layer(x, mask)
            if index == self.config.num_layers // 2:
                middle = self.out(x)
                x = x + self.out_mid(middle.softmax(dim=-1))
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0)
        return x, middle

    def ctc_logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (batch, T, hidden_dim) -> CTC logits (batch, T, output_dim); symbol 0 is the blank."""
        return self.out(hidden)


def _check_lengths(features: Tensor, lengths: Tensor | None) -> None:
    """ValueError unless there is one length an item, each within the features (read only where no device has to be waited for)."""
    if lengths is None:
        return
    if lengths.shape != features.shape[:1]:
        raise ValueError(f"lengths of shape {tuple(lengths.shape)} for {features.shape[0]} items: give one for each")
    if lengths.device.type == "cpu" and not bool(((lengths >= 0) & (lengths <= features.shape[1])).all()):
        raise ValueError(
            f"lengths {lengths.tolist()} of features of {features.shape[1]} frames: give 0 to {features.shape[1]}"
        )
