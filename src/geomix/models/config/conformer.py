"""What determines a Conformer with a CTC head, mixer included, and its size, without torch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from geomix.errors import UserError
from geomix.mixers.base import Size
from geomix.mixers.lazy import named
from geomix.mixers.registry import sizes_of
from geomix.models.config.lengths import CONVOLUTIONS, SUBSAMPLINGS, subsampled_length
from geomix.settings.replacements import Replacements, replacements_of
from geomix.settings.sizes import added

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class IntermediateCTC:
    """CTC losses inside the encoder (arXiv 2102.03216), with self-conditioning on request (arXiv 2104.02724).

    Attributes:
        blocks: after which blocks, counted from 1 as in ESPnet; the last block is not among them.
        weight: share w of the loss: (1 - w) final + w mean(intermediate).
        self_conditioning: add a linear map of the intermediate posteriors to the stream.
    """

    blocks: tuple[int, ...]
    weight: float = 0.5
    self_conditioning: bool = True


@dataclass(frozen=True)
class ConformerConfig:
    """Everything that determines a `ConformerCTC`, mixer included; the defaults are the parity recipe's (ESPnet, 15 x 256).

    Attributes:
        vocab: output units, blank included.
        features: log-mel bins.
        blocks, width, heads, ff_dim, kernel: sizes; `heads` is the default of an attention mixer.
        subsampling: 4 (conv2d) or 8 (conv2d8).
        dropout, positional_dropout, attention_dropout: probabilities.
        batch_norm: "espnet" takes statistics over padded frames too, as ESPnet does; "masked" over real frames alone.
        mixer: {"mixer": name, ...arguments}, see `geomix.mixers.make_mixer`; of a user's own with keys of `mixers.own.source`.
        seed: draws the signed mixer's table.
        intermediate_ctc: see `IntermediateCTC`.
        replaced: what the arm replaces beside the mixer: `feed_forward`, `projections` (`settings.replacements`); {} nothing.
    """

    model: ClassVar[str] = "geomix.models.conformer:ConformerCTC"

    vocab: int
    features: int = 80
    blocks: int = 15
    width: int = 256
    heads: int = 4
    ff_dim: int = 1024
    kernel: int = 31
    subsampling: int = 4
    dropout: float = 0.1
    positional_dropout: float = 0.1
    attention_dropout: float = 0.1
    batch_norm: str = "espnet"
    mixer: Mapping[str, Any] = field(default_factory=lambda: {"mixer": "attention"})
    seed: int = 0
    intermediate_ctc: IntermediateCTC | None = None
    replaced: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("vocab", "features", "blocks", "width", "heads", "ff_dim", "kernel"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"model.{name}: {value!r} is not a positive whole number")
        for name in ("dropout", "positional_dropout", "attention_dropout"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < 1:
                raise UserError(f"model.{name}: {value!r} is not a probability below 1")
        if self.vocab < 2:
            raise UserError(f"model.vocab: {self.vocab} leaves no unit beside the blank")
        if self.kernel % 2 == 0:
            raise UserError(f"model.kernel: {self.kernel} is even; the depthwise convolution needs an odd kernel")
        if self.subsampling not in SUBSAMPLINGS:
            raise UserError(
                f"model.subsampling: {self.subsampling!r} is not one of {', '.join(map(str, SUBSAMPLINGS))}"
            )
        if subsampled_length(self.features, self.subsampling) < 1:
            raise UserError(f"model.features: {self.features} bins are too few for subsampling {self.subsampling}")
        if self.batch_norm not in ("espnet", "masked"):
            raise UserError(f"model.batch_norm: {self.batch_norm!r} is not one of espnet, masked")
        if not isinstance(self.mixer, Mapping) or "mixer" not in self.mixer:
            raise UserError(f"model.mixer: {self.mixer!r} needs a mixer by name, e.g. {{mixer: attention}}")
        inter = self.intermediate_ctc
        if inter is not None:
            bad = [b for b in inter.blocks if not isinstance(b, int) or not 1 <= b < self.blocks]
            if bad or not inter.blocks:
                raise UserError(
                    f"model.intermediate_ctc.blocks: {list(inter.blocks)} must be blocks from 1 to {self.blocks - 1}"
                )
            if not 0 < inter.weight < 1:
                raise UserError(f"model.intermediate_ctc.weight: {inter.weight!r} is not between 0 and 1")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ConformerConfig:
        """From plain values (a YAML mapping); an unknown or missing key is a `UserError` that names it."""
        values = dict(values)
        _check_keys(cls, values, "model")
        inter = values.get("intermediate_ctc")
        if inter is not None:
            if not isinstance(inter, Mapping):
                raise UserError(
                    f"model.intermediate_ctc: {inter!r} is not {{blocks: [...], weight, self_conditioning}}"
                )
            _check_keys(IntermediateCTC, inter, "model.intermediate_ctc")
            for key, kind in (("blocks", list | tuple), ("weight", int | float)):
                if key in inter and not isinstance(inter[key], kind):
                    raise UserError(f"model.intermediate_ctc.{key}: {inter[key]!r} is not of its kind")
            values["intermediate_ctc"] = IntermediateCTC(**{**inter, "blocks": tuple(inter["blocks"])})
        return cls(**values)

    def build(self) -> nn.Module:
        """The untrained model."""
        return named(self.model)(self)

    @functools.cached_property
    def replacements(self) -> Replacements:
        """`replaced` as types."""
        return replacements_of(self.replaced)

    @property
    def frame_rate(self) -> float:
        """Encoder frames a second."""
        return 100 / self.subsampling

    @property
    def mixer_arguments(self) -> dict[str, Any]:
        """The mixer with its arguments, `heads` of an attention mixer filled in."""
        own = {"heads": self.heads} if self.mixer["mixer"] == "attention" else {}
        return {**own, **self.mixer}

    @functools.cached_property
    def mixer_sizes(self) -> list[Size]:
        """Size of each block's mixer; one of a user's own is made for that, with torch."""
        return sizes_of(self.mixer_arguments, self.width, self.blocks, self.seed)

    @property
    def counted_from_linear_maps(self) -> bool:
        """Whether the mixer, a user's own, says nothing of its multiply-adds: they are taken to be those of its linear maps."""
        return any(size.from_linear_maps for size in self.mixer_sizes)

    def parameters(self) -> int:
        """Trainable parameters, exactly."""
        width, vocab, inter = self.width, self.vocab, self.intermediate_ctc
        convolutions = CONVOLUTIONS[self.subsampling]
        front = (9 + 1) * width + (convolutions - 1) * (9 * width + 1) * width
        front += (width * subsampled_length(self.features, self.subsampling) + 1) * width
        feed_forward = 2 * width * self.ff_dim + self.ff_dim + width
        # pointwise in and out, depthwise, batch norm
        convolution = (2 * width * width + 2 * width) + (width * width + width) + (self.kernel + 1) * width + 2 * width
        block = 5 * 2 * width + 2 * feed_forward + convolution
        head = 2 * width + (width + 1) * vocab
        if inter is not None and inter.self_conditioning:
            head += (vocab + 1) * width
        block += added(self.replacements, width, self.ff_dim, 2).parameters
        return front + self.blocks * block + sum(size.parameters for size in self.mixer_sizes) + head

    def macs_per_frame(self, frames: int) -> float:
        """Multiply-adds of the forward pass per encoder frame, in utterances of `frames` encoder frames.

        Matrix products and convolutions; of the front end's, without their margins.
        """
        width, inter = self.width, self.intermediate_ctc
        macs = width * self.vocab + width * subsampled_length(self.features, self.subsampling) * width
        rows, bins = self.subsampling, self.features
        for number in range(CONVOLUTIONS[self.subsampling]):
            rows, bins = rows // 2, (bins - 1) // 2  # rows: frames of this layer per encoder frame
            macs += rows * bins * 9 * width * (width if number else 1)
        macs += self.blocks * (2 * 2 * width * self.ff_dim + 3 * width * width + self.kernel * width)
        macs += sum(size.macs_per_frame(frames) for size in self.mixer_sizes)
        macs += self.blocks * added(self.replacements, width, self.ff_dim, 2, frames).macs
        if inter is not None:
            macs += len(inter.blocks) * width * self.vocab * (2 if inter.self_conditioning else 1)
        return macs

    def to_dict(self) -> dict[str, Any]:
        """Plain values from which `from_dict` makes the same configuration."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["mixer"] = _plain(self.mixer)
        if self.replaced:
            values["replaced"] = _plain(self.replaced)
        else:
            del values["replaced"]
        if self.intermediate_ctc is not None:
            values["intermediate_ctc"] = _plain(dataclasses.asdict(self.intermediate_ctc))
        return values


def _check_keys(cls, values: Mapping[str, Any], where: str) -> None:
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            raise UserError(f"{where}.{key}: no such key; the keys are {', '.join(fields)}")
    for name, f in fields.items():
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and name not in values:
            raise UserError(f"{where}.{name}: missing; give it a value")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
