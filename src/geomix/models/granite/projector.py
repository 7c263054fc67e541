"""The windowed Q-Former between encoder and decoder: every 15 encoder frames become 3 rows of the decoder's width.

Sources: GraniteSpeechEncoderProjector and Blip2QFormerModel of transformers 4.57.1; BLIP-2: https://arxiv.org/abs/2301.12597.
Trainable; the original's dropout is left out, as its published rate is 0 where it is given.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geomix.models.granite.config import ProjectorConfig


class _Heads(nn.Module):
    def __init__(self, width: int, source: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(source, width)
        self.value = nn.Linear(source, width)

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for y in (self.query(x), self.key(source), self.value(source))
        )
        return F.scaled_dot_product_attention(q.expand(k.shape[0], -1, -1, -1), k, v).transpose(1, 2).flatten(2)


class _AddNorm(nn.Module):
    """LayerNorm(residual + Linear(x)): BLIP-2 is post-norm."""

    def __init__(self, width_in: int, width: int, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width_in, width)
        self.LayerNorm = nn.LayerNorm(width, eps=eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class _Attention(nn.Module):
    def __init__(self, config: ProjectorConfig, source: int) -> None:
        super().__init__()
        self.attention = _Heads(config.hidden_size, source, config.num_attention_heads)
        self.output = _AddNorm(config.hidden_size, config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        return self.output(self.attention(x, source), x)


class _Intermediate(nn.Module):
    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.dense(x))


class _Layer(nn.Module):
    def __init__(self, config: ProjectorConfig, index: int) -> None:
        super().__init__()
        self.attention = _Attention(config, config.hidden_size)
        crosses = index % config.cross_attention_frequency == 0
        self.crossattention = _Attention(config, config.encoder_hidden_size) if crosses else None
        self.intermediate_query = _Intermediate(config)
        self.output_query = _AddNorm(config.intermediate_size, config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor, window: Tensor) -> Tensor:
        x = self.attention(x, x)
        if self.crossattention is not None:
            x = self.crossattention(x, window)
        return self.output_query(self.intermediate_query(x), x)


class _QFormer(nn.Module):
    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList()})
        for index in range(config.num_hidden_layers):
            self.encoder["layer"].append(_Layer(config, index))

    def forward(self, query: Tensor, windows: Tensor) -> Tensor:
        # the queries are the same for all windows until they first look into one: computed once, not once a window
        x = self.layernorm(query)
        for layer in self.encoder["layer"]:
            x = layer(x, windows)
        return x.expand(windows.shape[0], -1, -1)


class Projector(nn.Module):
    """Encoder hidden states (batch, T, encoder width) -> rows (batch, ceil(T / window) * queries, decoder width)."""

    def __init__(self, config: ProjectorConfig, text_width: int) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Parameter(torch.empty(1, config.queries, config.hidden_size).normal_())
        self.qformer = _QFormer(config)
        self.linear = nn.Linear(config.hidden_size, text_width)

    def rows(self, frames: int | Tensor) -> int | Tensor:
        """Rows for a number of encoder frames: the padded last window counts in full."""
        return -(-frames // self.config.window_size) * self.config.queries

    def forward(self, hidden: Tensor) -> Tensor:
        """`hidden` must be zero beyond an item's length (as the encoder leaves it): then its rows are those it has alone."""
        batch, time, width = hidden.shape
        windows = F.pad(hidden, (0, 0, 0, -time % self.config.window_size)).view(-1, self.config.window_size, width)
        return self.linear(self.qformer(self.query, windows)).view(batch, self.rows(time), -1)
