"""Causal language model of the article's e01: a Transformer whose mixer slot holds attention or a pair mixer.

Layout and counts after the public re-implementation that reproduced the paper's Transformer (github.com/kanenorman/grassmann)
with the paper's gate (arXiv 2512.19428, section 3): learned positions, blocks of mixer and GELU feed-forward, a final
LayerNorm, an output head tied to the embedding and without bias.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.errors import UserError
from geomix.files import write_text
from geomix.kernels.linear_cross_entropy import linear_cross_entropy
from geomix.mixers import Frames, make_mixer
from geomix.mixers.registry import causal_mixers, entry_of
from geomix.models.config.transformer_lm import LanguageModelConfig
from geomix.tensors import load_state, state_once, write_tensors


class CausalAttention(nn.Module):
    """Multi-head self-attention over the tokens up to each one; no dropout on the weights, no positions of its own."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        if width % heads:
            raise UserError(f"{heads} attention heads do not divide the width {width}: choose a divisor of it")
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        """(B, T, width) to (B, T, width)."""
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """One layer: a causal mixer and a feed-forward, with LayerNorm after (post) or before (pre) each.

    post : x = LN(x + drop(attention(x))), or x = drop(LN(alpha x + (1 - alpha) g)) for a pair mixer, whose gate stands for
        the residual; then x = LN(x + drop(ffn(x))).
    pre : x = x + drop(mixer(LN(x))), a pair mixer giving the branch (1 - alpha)(g - u); then x = x + drop(ffn(LN(x))).
    """

    def __init__(self, config: LanguageModelConfig, index: int) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.mixer = make_causal_mixer(config.mixer, config.width, index, config.seed, blend=not self.pre)
        self.residual = self.pre or not getattr(self.mixer, "blend", False)
        self.extra = nn.Linear(config.width, config.width) if config.extra_linear else nn.Identity()
        self.norm_mixer = nn.LayerNorm(config.width)
        self.norm_ff = nn.LayerNorm(config.width)
        self.ff = nn.Sequential(
            nn.Linear(config.width, config.ff_dim), nn.GELU(), nn.Linear(config.ff_dim, config.width)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        """(B, T, width) to (B, T, width)."""
        if self.pre:
            x = x + self.dropout(self.extra(self.mixer(self.norm_mixer(x), frames)))
            return x + self.dropout(self.ff(self.norm_ff(x)))
        mixed = self.extra(self.mixer(x, frames))
        x = self.norm_mixer(x + self.dropout(mixed)) if self.residual else self.dropout(self.norm_mixer(mixed))
        return self.norm_ff(x + self.dropout(self.ff(x)))


def make_causal_mixer(mixer: Mapping[str, Any], width: int, block: int, seed: int, *, blend: bool) -> nn.Module:
    """The mixer of one block of a language model: attention, also over multivectors, or a one-sided PairMixer, all causal.

    `blend` says whether a pair mixer returns the paper's blend of input and feature or the branch for a residual stream.

    Raises UserError for another mixer, a two-sided one, or an unknown argument.
    """
    arguments = dict(mixer)
    name = arguments.pop("mixer")
    if name == "attention":
        heads = arguments.pop("heads", 4)
        if arguments:
            raise UserError(f"argument {next(iter(arguments))!r} of causal attention is not known: it takes heads")
        return CausalAttention(width, heads)
    if entry_of(name).causal is None:
        raise UserError(
            f"mixer {name!r} has no causal form: choose {' or '.join(causal_mixers())} for a language model"
        )
    if name != "pair":
        return make_mixer(name, width, block=block, seed=seed, **{**arguments, "causal": True})
    if arguments.setdefault("two_sided", False):
        raise UserError("two_sided: true lets a language model read the token it predicts: leave it out")
    return make_mixer(name, width, block=block, seed=seed, blend=blend, **arguments)


class TransformerLM(nn.Module):
    """The model: tokens (B, T) and the tokens that follow them in, mean cross-entropy in nats out."""

    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, index) for index in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        if config.init_std is not None:
            for module in self.modules():
                if isinstance(module, (nn.Linear, nn.Embedding)):
                    nn.init.normal_(module.weight, std=config.init_std)
                if isinstance(module, nn.Linear):
                    nn.init.zeros_(module.bias)

    def hidden(self, tokens: Tensor) -> Tensor:
        """(B, T) int64 token ids to (B, T, width), after the final norm; position t depends on tokens 0 .. t alone."""
        batch, time = tokens.shape
        mask = torch.ones(batch, time, dtype=torch.bool, device=tokens.device)
        frames = Frames(torch.full((batch,), time, device=tokens.device), mask)
        x = self.dropout(self.tokens(tokens) + self.positions.weight[:time])
        for block in self.blocks:
            x = block(x, frames)
        return self.norm(x)

    def logits(self, tokens: Tensor) -> Tensor:
        """(B, T) token ids to (B, T, vocab) scores of the next token."""
        return self.hidden(tokens) @ self.tokens.weight.T

    def forward(self, tokens: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """{"loss": mean over all tokens of -ln p(target)} for tokens and targets (B, T)."""
        hidden = self.hidden(tokens).flatten(0, 1)
        return {"loss": linear_cross_entropy(hidden, self.tokens.weight, targets.flatten())}


def parameter_count(config: LanguageModelConfig) -> int:
    """Trainable parameters, the tied head counted once; nothing is allocated."""
    return config.parameters()


def train_flops_per_token(config: LanguageModelConfig, length: int | None = None) -> float:
    """Floating point operations of one training step (forward and backward) a token: six a multiply-add of the forward pass.

    Causal attention counts as half (performance notes of the article's e00), element-wise work not at all. `length` is the
    block length, by default all positions.
    """
    return 6.0 * config.macs_per_token(config.positions if length is None else length)


def save_language_model(model: TransformerLM, folder: str | Path) -> None:
    """Write model.safetensors and model.yaml into `folder`; `load_language_model` needs nothing else."""
    import yaml

    folder = Path(folder)
    write_tensors(folder / "model.safetensors", state_once(model))
    values = {**dataclasses.asdict(model.config), "mixer": dict(model.config.mixer)}
    write_text(folder / "model.yaml", yaml.safe_dump({"language_model": values}, sort_keys=False))


def load_language_model(folder: str | Path) -> TransformerLM:
    """The model saved in `folder`, in eval mode."""
    import yaml
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        values = yaml.safe_load((folder / "model.yaml").read_text(encoding="utf-8"))["language_model"]
        weights = load_file(folder / "model.safetensors")
    except (FileNotFoundError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: no language model here ({error}): train one first") from None
    model = TransformerLM(LanguageModelConfig.from_dict(values))
    load_state(model, weights)
    return model.eval()
