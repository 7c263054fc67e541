"""What determines a small Granite encoder with CTC, and its size, without torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from geomix.errors import UserError
from geomix.mixers.lazy import named

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class GraniteEncoderCTCConfig:
    """`middle_weight`: share of the middle head's loss, (1 - w) * final + w * middle. `context` in frames of 20 ms."""

    model: ClassVar[str] = "geomix.models.granite.encoder_ctc:GraniteEncoderCTC"

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

    def build(self) -> nn.Module:
        """The untrained model."""
        return named(self.model)(self)

    @property
    def frame_rate(self) -> float:
        """Encoder frames a second."""
        return 50.0

    def parameters(self) -> int:
        """Trainable parameters, exactly."""
        width, inner = self.width, 2 * self.width  # the convolution's channels are twice the width
        feed_forward = 2 * width + 2 * self.ff_mult * width * width + (self.ff_mult + 1) * width
        attention = 2 * width + 4 * width * width + width + (2 * self.context + 1) * (width // self.heads)
        convolution = (
            2 * width + (2 * inner * width + 2 * inner) + self.kernel * inner + 2 * inner + inner * width + width
        )
        block = 2 * feed_forward + attention + convolution + 2 * width
        heads = (width + 1) * self.vocab + (self.vocab + 1) * width
        return (2 * self.features + 1) * width + self.blocks * block + heads

    def macs_per_frame(self, frames: int) -> float:
        """Multiply-adds of the forward pass per encoder frame, in utterances of `frames` encoder frames.

        Every linear map and convolution once (the head `out` twice: middle and end), and in each block the products with
        a window's keys, distances and values.
        """
        width, inner, size = self.width, 2 * self.width, min(self.context, frames)
        block = 2 * 2 * self.ff_mult * width * width + 4 * width * width
        block += 2 * inner * width + self.kernel * inner + inner * width + width * (size + (2 * size - 1) + size)
        return 2 * self.features * width + self.blocks * block + 3 * width * self.vocab
