"""Conformer encoder with a CTC head, laid out as ESPnet's, with a slot for the sequence mixer."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.errors import UserError
from geomix.kernels.depthwise import depthwise_conv
from geomix.kernels.dropout import dropout
from geomix.mixers import Frames, make_mixer
from geomix.models.config.conformer import ConformerConfig
from geomix.models.config.lengths import shortest, subsampled_length
from geomix.models.ctc import ctc_loss
from geomix.models.replaced import feed_forward_maps, replace_projections
from geomix.models.subsampling import Conv2dSubsampling


class FeedForward(nn.Module):
    """w_2(dropout(swish(w_1 x))): ESPnet's PositionwiseFeedForward."""

    def __init__(self, width: int, ff_dim: int, dropout: float) -> None:
        super().__init__()
        self.w_1: nn.Module = nn.Linear(width, ff_dim)
        self.w_2: nn.Module = nn.Linear(ff_dim, width)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(dropout(F.silu(self.w_1(x)), self.dropout, self.training))


class ConvolutionModule(nn.Module):
    """Pointwise (gated), depthwise, batch norm, swish, pointwise: ESPnet's, with padded frames zeroed where time is mixed.

    The parameters are those of Conv1d layers, as in ESPnet; the arithmetic runs on (B, T, channels), without transposes.
    """

    def __init__(self, width: int, kernel: int, batch_norm: str) -> None:
        super().__init__()
        self.pointwise_conv1 = nn.Conv1d(width, 2 * width, 1)
        self.depthwise_conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.BatchNorm1d(width)
        self.pointwise_conv2 = nn.Conv1d(width, width, 1)
        self.masked = batch_norm == "masked"

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        x = F.glu(F.linear(x, self.pointwise_conv1.weight.squeeze(-1), self.pointwise_conv1.bias))
        x = x * frames.mask.unsqueeze(-1)
        x = depthwise_conv(x, self.depthwise_conv.weight, self.depthwise_conv.bias)
        x = F.silu(self.normalise(x, frames.mask))
        return F.linear(x, self.pointwise_conv2.weight.squeeze(-1), self.pointwise_conv2.bias)

    def normalise(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.training and self.masked:
            y = torch.zeros_like(x)
            y[mask] = self.norm(x[mask])
            return y
        return self.norm(x.flatten(0, 1)).view_as(x)


class ConformerBlock(nn.Module):
    """Macaron feed-forward, mixer, convolution, feed-forward, each on a normed branch; ESPnet's EncoderLayer.

    Without a mixer the slot is skipped, and `norm_mha` stays a member, so that the arm's count is 26,945,032 at ff_dim 1344.
    """

    def __init__(self, config: ConformerConfig, block: int) -> None:
        super().__init__()
        width = config.width
        norm = lambda: nn.LayerNorm(width, eps=1e-12)
        self.norm_ff_macaron, self.norm_mha, self.norm_conv, self.norm_ff, self.norm_final = (norm() for _ in range(5))
        self.feed_forward_macaron = FeedForward(width, config.ff_dim, config.dropout)
        self.mixer = _mixer(config, block)
        self.conv_module = ConvolutionModule(width, config.kernel, config.batch_norm)
        self.feed_forward = FeedForward(width, config.ff_dim, config.dropout)
        self.dropout = config.dropout

    def forward(self, x: Tensor, frames: Frames) -> Tensor:
        drop = lambda y: dropout(y, self.dropout, self.training)
        x = torch.add(x, drop(self.feed_forward_macaron(self.norm_ff_macaron(x))), alpha=0.5)
        if self.mixer is not None:
            x = x + drop(self.mixer(self.norm_mha(x), frames))
        x = x + drop(self.conv_module(self.norm_conv(x), frames))
        x = torch.add(x, drop(self.feed_forward(self.norm_ff(x))), alpha=0.5)
        return self.norm_final(x)


def _mixer(config: ConformerConfig, block: int) -> nn.Module | None:
    dropout = config.attention_dropout
    return make_mixer(width=config.width, block=block, seed=config.seed, dropout=dropout, **config.mixer_arguments)


def _replace(model: ConformerCTC) -> None:
    """Put what the arm replaces beside the mixer in its place."""
    config, spec = model.config, model.config.replacements
    for index, block in enumerate(model.blocks):
        for name in ("feed_forward_macaron", "feed_forward") if spec.feed_forward else ():
            module, sizes = getattr(block, name), (config.width, config.ff_dim, config.seed)
            module.w_1, module.w_2 = feed_forward_maps(spec.feed_forward, *sizes, index, name)
        if spec.projections:
            replace_projections(block.mixer, spec.projections, config.width, config.seed, index)


class ConformerCTC(nn.Module):
    """Log-mel frames to CTC log-probabilities and loss.

    Padding never changes a real frame in eval mode: lengths are counted per utterance, the mixers and convolutions read real
    frames only. In training, `batch_norm: espnet` takes its statistics over padded frames as well, as ESPnet does.
    """

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean", torch.zeros(config.features))
        self.register_buffer("std", torch.ones(config.features))
        self.embed = Conv2dSubsampling(config.features, config.width, config.subsampling)
        self.blocks = nn.ModuleList(ConformerBlock(config, block) for block in range(config.blocks))
        self.after_norm = nn.LayerNorm(config.width, eps=1e-12)
        self.ctc = nn.Linear(config.width, config.vocab)
        inter = config.intermediate_ctc
        self.conditioning = nn.Linear(config.vocab, config.width) if inter and inter.self_conditioning else None
        _replace(self)
        self.needs_positions = any(getattr(block.mixer, "needs_positions", False) for block in self.blocks)

    def set_normalisation(self, mean, std) -> None:
        """Global mean and standard deviation of the log-mel bins, (features,) each; they are saved with the model."""
        self.mean.copy_(torch.as_tensor(mean))
        self.std.copy_(torch.as_tensor(std))

    def subsampled_lengths(self, lengths: Tensor) -> Tensor:
        """Encoder frames of utterances of `lengths` log-mel frames."""
        return subsampled_length(lengths, self.config.subsampling)

    def forward(self, features: Tensor, lengths: Tensor, tokens: Tensor, token_lengths: Tensor) -> dict[str, Tensor]:
        """Loss of a batch.

        Args:
            features: (B, T, bins) log-mel before normalisation, padded with anything.
            lengths: (B,) frames.
            tokens: (B, U) int64 padded with 0; 0 is the blank and never a target.
            token_lengths: (B,).

        Returns:
            {"loss": sum over the batch / batch size} and, with intermediate CTC, its detached parts.
        """
        logits, intermediate, frames = self.encode(features, lengths)
        loss = lambda y: ctc_loss(_log_softmax(y), frames.lengths, tokens, token_lengths)
        final = loss(logits)
        if not intermediate:
            return {"loss": final}
        inner = sum(loss(y) for y in intermediate) / len(intermediate)
        weight = self.config.intermediate_ctc.weight
        parts = {"loss_final": final.detach(), "loss_intermediate": inner.detach()}
        return {"loss": (1 - weight) * final + weight * inner, **parts}

    def log_probs(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, bins) and (B,) to (B, T', V) fp32 log-probabilities and their (B,) lengths."""
        logits, _, frames = self.encode(features, lengths)
        return _log_softmax(logits), frames.lengths

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor], Frames]:
        """Logits (B, T', V), the intermediate ones, and the frames of the batch."""
        x, frames = self.embedded(features, lengths)
        return *self.encode_embedded(x, frames), frames

    def encode_embedded(self, x: Tensor, frames: Frames) -> tuple[Tensor, list[Tensor]]:
        """What `embedded` gives to logits (B, T', V) and the intermediate ones."""
        inter = self.config.intermediate_ctc
        intermediate = []
        for number, block in enumerate(self.blocks, start=1):
            x = block(x, frames)
            if inter is not None and number in inter.blocks:
                intermediate.append(self.ctc(self.after_norm(x)))
                if self.conditioning is not None:
                    x = x + self.conditioning(_log_softmax(intermediate[-1]).exp().to(x.dtype))
        return self.ctc(self.after_norm(x)), intermediate

    def embedded(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Frames]:
        """Input of the first block, (B, T', width), and the frames of the batch."""
        self._check_lengths(features, lengths)
        config = self.config
        lengths = lengths.to(features.device)
        padded = torch.arange(features.shape[1], device=features.device) >= lengths.unsqueeze(1)
        x = ((features - self.mean) / self.std).masked_fill(padded.unsqueeze(-1), 0.0)
        x = self.embed(x)
        frames = Frames.of(
            self.subsampled_lengths(lengths), x.shape[1], config.width if self.needs_positions else None, dtype=x.dtype
        )
        drop = lambda y: dropout(y, config.positional_dropout, self.training)
        if frames.positions is not None:
            frames = replace(frames, positions=drop(frames.positions))
        return drop(x * config.width**0.5), frames

    def _check_lengths(self, features: Tensor, lengths: Tensor) -> None:
        if self.training and lengths.device.type != "cpu":
            return  # the trainer has dropped what is too short; asking the device would stall it at every step
        least = shortest(self.config.subsampling)
        if len(lengths) and int(lengths.min()) < least:
            raise UserError(
                f"an utterance of {int(lengths.min())} frames is too short: subsampling {self.config.subsampling} needs at "
                f"least {least} frames of 10 ms; drop it or pad the recording with silence"
            )
        if len(lengths) and int(lengths.max()) > features.shape[1]:
            raise ValueError(f"a length of {int(lengths.max())} frames exceeds the features' {features.shape[1]}")


def _log_softmax(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
