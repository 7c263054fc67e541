"""The Granite decoder: grouped-query attention with rotary positions, SwiGLU, and four multipliers.

Source: GraniteForCausalLM of transformers 4.57.1. RMSNorm and rotary angles are computed in at least fp32 (float64 stays
float64). Trainable; without dropout, as the published configurations set it to 0.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geomix.models.granite.config import TextConfig


class KeyValueCache:
    """Keys and values of all layers for up to `capacity` positions; the memory is taken once, by the first `store`.

    `length`: positions filled. `real`: (batch, capacity) bool, which of them are not padding. `next_position`: (batch,) rotary
    position of the token that comes next, counted without padding.
    """

    def __init__(self, layers: int, batch: int, capacity: int, device: torch.device) -> None:
        self.layers = layers
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.real = torch.zeros((batch, capacity), dtype=torch.bool, device=device)
        self.next_position = torch.zeros(batch, dtype=torch.long, device=device)
        self.length = 0
        self.padded = False

    def extend(self, mask: Tensor | None, tokens: int) -> Tensor:
        """Make room for `tokens` new positions, real where mask (batch, tokens) is; returns their rotary positions."""
        if self.length + tokens > self.real.shape[1]:
            raise ValueError(f"the cache holds {self.real.shape[1]} positions, {self.length + tokens} are needed")
        if mask is None:
            mask = self.real.new_ones((len(self.real), tokens))
        else:
            self.padded = self.padded or not bool(mask.all())
        self.real[:, self.length : self.length + tokens] = mask
        positions = (self.next_position[:, None] + mask.cumsum(1) - 1).clamp(min=0)
        self.next_position = self.next_position + mask.sum(1)
        self.length += tokens
        return positions

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the newest k, v (batch, kv heads, tokens, d) of a layer; returns all of the layer's so far."""
        if self.keys is None:
            shape = (self.layers, k.shape[0], k.shape[1], self.real.shape[1], k.shape[3])
            self.keys, self.values = k.new_zeros(shape), k.new_zeros(shape)
        start = self.length - k.shape[2]
        self.keys[layer, :, :, start : self.length] = k
        self.values[layer, :, :, start : self.length] = v
        return self.keys[layer, :, :, : self.length], self.values[layer, :, :, : self.length]

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order, repeated where they repeat (beams)."""
        self.keys, self.values = self.keys.index_select(1, rows), self.values.index_select(1, rows)
        self.real, self.next_position = self.real[rows], self.next_position[rows]


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotary(positions: Tensor, width: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines (batch, 1, tokens, width) of positions (batch, tokens); both halves turn by the same angles."""
    wide = torch.promote_types(dtype, torch.float32)
    frequencies = theta ** (-torch.arange(0, width, 2, dtype=wide, device=positions.device) / width)
    angles = positions[:, None, :, None].to(wide) * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (x_i, x_(i + d/2)) of x (batch, heads, tokens, d)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class SelfAttention(nn.Module):
    """Causal grouped-query attention; `attention_multiplier` stands in the place of 1 / sqrt(d)."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.scale = (
            config.num_attention_heads, config.num_key_value_heads, config.attention_multiplier,
        )  # fmt: skip
        width = config.head_width
        self.q_proj = nn.Linear(config.hidden_size, self.heads * width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, self.kv_heads * width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, self.kv_heads * width, bias=False)
        self.o_proj = nn.Linear(self.heads * width, config.hidden_size, bias=False)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor | None, cache: KeyValueCache | None, layer: int
    ):
        split = lambda y, heads: y.unflatten(-1, (heads, -1)).transpose(1, 2)
        q = rotate(split(self.q_proj(x), self.heads), *turn)
        k = rotate(split(self.k_proj(x), self.kv_heads), *turn)
        v = split(self.v_proj(x), self.kv_heads)
        if cache is not None:
            k, v = cache.store(layer, k, v)
        if x.shape[1] == 1:  # the heads that share keys become queries of one head: keys are not repeated
            q = q.unflatten(1, (self.kv_heads, -1)).squeeze(3)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale)
            return self.o_proj(y.flatten(1, 2).flatten(1).unsqueeze(1))
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.scale, enable_gqa=self.heads != self.kv_heads
        )
        return self.o_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Pre-norm attention and MLP; `residual_multiplier` scales what each adds."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.residual_multiplier = config.residual_multiplier
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = SelfAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, turn, mask, cache, layer: int) -> Tensor:
        x = x + self.residual_multiplier * self.self_attn(self.input_layernorm(x), turn, mask, cache, layer)
        return x + self.residual_multiplier * self.mlp(self.post_attention_layernorm(x))


class DecoderStack(nn.Module):
    """Embedding table, layers and last norm (`language_model.model` in the files)."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, embeddings: Tensor, mask: Tensor | None, cache: KeyValueCache | None) -> Tensor:
        batch, tokens, _ = embeddings.shape
        # a pass without a cache needs its bookkeeping all the same
        book = cache or KeyValueCache(len(self.layers), batch, tokens, embeddings.device)
        before = book.length
        positions = book.extend(mask, tokens)
        turn = rotary(positions, self.config.head_width, self.config.rope_theta, embeddings.dtype)
        allowed = self._allowed(book, before, tokens)
        x = embeddings * self.config.embedding_multiplier
        for index, layer in enumerate(self.layers):
            x = layer(x, turn, allowed, cache, index)
        return self.norm(x)

    @staticmethod
    def _allowed(book: KeyValueCache, before: int, tokens: int) -> Tensor | None:
        """(batch, 1, tokens, keys) bool: which keys a query sees; None where plain causal attention says it all."""
        if not book.padded and (before == 0 or tokens == 1):
            return None
        keys = torch.arange(book.length, device=book.real.device)
        queries = keys[before:, None]
        # a padding query sees itself: a row without any key would be NaN
        return ((keys <= queries) & (book.real[:, None, : book.length] | (keys == queries)))[:, None]


class GraniteDecoder(nn.Module):
    """Decoder-wide embeddings to logits; the head is the embedding table when `tied`."""

    def __init__(self, config: TextConfig, tied: bool) -> None:
        super().__init__()
        self.config = config
        self.model = DecoderStack(config)
        self.lm_head = None if tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def new_cache(self, batch: int, capacity: int) -> KeyValueCache:
        """An empty cache for `batch` items of up to `capacity` tokens each."""
        return KeyValueCache(len(self.model.layers), batch, capacity, self.model.embed_tokens.weight.device)

    def forward(
        self,
        embeddings: Tensor,
        mask: Tensor | None = None,
        cache: KeyValueCache | None = None,
        *,
        last_only: bool = False,
    ) -> Tensor:
        """Embeddings (batch, tokens, width) before `embedding_multiplier` -> logits (batch, tokens or 1, vocabulary).

        mask: (batch, tokens) bool, False for padding on the left. With a cache the tokens follow those that it holds.
        """
        hidden = self.model(embeddings, mask, cache)
        if last_only:
            hidden = hidden[:, -1:]
        head = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(hidden, head) / self.config.logits_scaling
