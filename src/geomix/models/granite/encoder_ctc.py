"""A small Granite encoder trained from scratch with CTC on its middle and its final head.

The same interface as `geomix.models.conformer.ConformerCTC`, so that the trainer, the decoder and the scorer of the speech
study take it as it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from geomix.errors import UserError
from geomix.models.ctc import ctc_loss
from geomix.models.granite.config import EncoderConfig
from geomix.models.granite.encoder import GraniteEncoder
from geomix.models.granite.features import stack_frames


@dataclass(frozen=True)
class GraniteEncoderCTCConfig:
    """`middle_weight`: share of the middle head's loss, (1 - w) * final + w * middle. `context` in frames of 20 ms."""

    vocab: int
    features: int = 80
    blocks: int = 6
    width: int = 144
    heads: int = 4
    ff_mult: int = 4
    kernel: int = 15
    context: int = 200
    dropout: float = 0.1
    middle_weight: float = 0.3

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GraniteEncoderCTCConfig:
        """Strict: an unknown key is a `UserError` that names it; `architecture`, if given, is `granite_encoder`."""
        values = dict(values)
        if (architecture := values.pop("architecture", "granite_encoder")) != "granite_encoder":
            raise UserError(f"granite_encoder: architecture {architecture!r} is another model's: write granite_encoder")
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise UserError(f"granite_encoder: unknown key {key!r}: choose from {', '.join(sorted(known))}")
        return cls(**values)

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise UserError(f"granite_encoder: heads {self.heads} does not divide width {self.width}: choose a divisor")
        if not 0.0 <= self.middle_weight < 1.0:
            raise UserError(
                f"granite_encoder: middle_weight {self.middle_weight} is not in [0, 1): it is a share of the loss"
            )
        if self.middle_weight and self.blocks < 2:
            raise UserError("granite_encoder: a single block has no middle: set middle_weight to 0 or take more blocks")

    def to_dict(self) -> dict[str, Any]:
        """Plain values from which `from_dict` makes the same configuration."""
        return {"architecture": "granite_encoder", **asdict(self)}

    def encoder(self) -> EncoderConfig:
        """The encoder's configuration; distances beyond a window have no vector."""
        return EncoderConfig(
            input_dim=2 * self.features, num_layers=self.blocks, hidden_dim=self.width, feedforward_mult=self.ff_mult,
            num_heads=self.heads, dim_head=self.width // self.heads, output_dim=self.vocab, context_size=self.context,
            max_pos_emb=self.context, dropout=self.dropout, conv_kernel_size=self.kernel,
        )  # fmt: skip

    def build(self) -> GraniteEncoderCTC:
        """The untrained model."""
        return GraniteEncoderCTC(self)

    @property
    def frame_rate(self) -> float:
        """Encoder frames a second."""
        return 50.0

    def macs_per_frame(self, frames: int) -> float:
        """Multiply-adds of the forward pass per encoder frame, in utterances of `frames` encoder frames.

        Every linear map and convolution once (the head `out` twice: middle and end), and in each block the products with
        a window's keys, distances and values.
        """
        with torch.device("meta"):
            model = self.build()
        weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear | nn.Conv1d))
        size = min(self.context, frames)
        return weights + self.width * self.vocab + self.blocks * self.width * (size + 2 * size - 1 + size)


class GraniteEncoderCTC(nn.Module):
    """Log-mel frames (10 ms) to a CTC loss or to log-probabilities at 20 ms."""

    def __init__(self, config: GraniteEncoderCTCConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = GraniteEncoder(config.encoder())
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
