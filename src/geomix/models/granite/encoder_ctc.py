"""A small Granite encoder trained from scratch with CTC on its middle and its final head.

The same interface as `geomix.models.conformer.ConformerCTC`, so that the trainer, the decoder and the scorer of the speech
study take it as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from geomix.models.config.granite_encoder import GraniteEncoderCTCConfig
from geomix.models.ctc import ctc_loss
from geomix.models.granite.config import EncoderConfig
from geomix.models.granite.encoder import GraniteEncoder
from geomix.models.granite.features import stack_frames


def encoder_config(config: GraniteEncoderCTCConfig) -> EncoderConfig:
    """The encoder's configuration; distances beyond a window have no vector."""
    return EncoderConfig(
        input_dim=2 * config.features, num_layers=config.blocks, hidden_dim=config.width,
        feedforward_mult=config.ff_mult, num_heads=config.heads, dim_head=config.width // config.heads,
        output_dim=config.vocab, context_size=config.context, max_pos_emb=config.context, dropout=config.dropout,
        conv_kernel_size=config.kernel,
    )  # fmt: skip


class GraniteEncoderCTC(nn.Module):
    """Log-mel frames (10 ms) to a CTC loss or to log-probabilities at 20 ms."""

    def __init__(self, config: GraniteEncoderCTCConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = GraniteEncoder(encoder_config(config))
        self.register_buffer("mean", torch.zeros(config.features))
        self.register_buffer("std", torch.ones(config.features))

    def set_normalisation(self, mean: Any, std: Any) -> None:
        """Global mean and standard deviation (features,) of the training set, taken off before the encoder."""
        self.mean.copy_(torch.as_tensor(mean))
        self.std.copy_(torch.as_tensor(std))

    def subsampled_lengths(self, lengths: Tensor) -> Tensor:
        """Encoder frames of `lengths` log-mel frames."""
        return lengths // 2

    def _encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        lengths = self.subsampled_lengths(lengths)
        stacked = stack_frames((features - self.mean) / self.std)[:, : int(lengths.max())]
        hidden, middle = self.encoder.encode(stacked, lengths)
        return self.encoder.ctc_logits(hidden), middle, lengths

    def forward(self, features: Tensor, lengths: Tensor, tokens: Tensor, token_lengths: Tensor) -> dict[str, Tensor]:
        """features (batch, T, 80) raw log-mel, lengths (batch,), tokens (batch, U) padded with 0, token_lengths (batch,).

        Returns "loss" (summed over the batch, divided by the batch size; infinite losses count as zero) and the detached
        parts "loss_final" and "loss_middle".
        """
        final, middle, frames = self._encode(features, lengths)
        losses = {"final": ctc_loss(_log_softmax(final), frames, tokens, token_lengths)}
        loss = losses["final"]
        if weight := self.config.middle_weight:
            losses["middle"] = ctc_loss(_log_softmax(middle), frames, tokens, token_lengths)
            loss = (1 - weight) * losses["final"] + weight * losses["middle"]
        return {"loss": loss, **{f"loss_{name}": value.detach() for name, value in losses.items()}}

    def log_probs(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """features (batch, T, 80), lengths (batch,) -> log-probabilities (batch, T', vocab) in fp32 and lengths (batch,)."""
        logits, _, frames = self._encode(features, lengths)
        return _log_softmax(logits), frames


def _log_softmax(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
