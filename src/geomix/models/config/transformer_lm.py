"""What determines a causal language model, mixer included, and its size, without torch."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Mapping
from typing import Any

from geomix.errors import UserError
from geomix.mixers.base import Size
from geomix.mixers.registry import sizes_of
from geomix.settings.replacements import Replacements, replacements_of
from geomix.settings.sizes import added


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig:
    """What is built.

    vocab, positions : pieces of the vocabulary; longest block of tokens.
    blocks, width, ff_dim : depth, model width, inner width of the feed-forward.
    dropout : of the embedding and of both sub-blocks' outputs; none inside attention or the feed-forward.
    norm : "post" (the paper) or "pre": x + mixer(LN(x)).
    init_std : standard deviation of all embeddings and linear weights, biases 0; None: torch's own (embeddings N(0, 1)).
    extra_linear : a width x width linear map with bias after the mixer: the d^2 + d parameters a layer by which the paper's
        counts exceed its equations.
    mixer : {"mixer": "attention", "heads": 4}, {"mixer": "pair", ...arguments of PairMixer}, or a causal one of a user's own with
        the keys of `mixers.own.source`.
    seed : of tables that are drawn and of what is replaced.
    replaced : what the arm replaces beside the mixer: `feed_forward`, `projections`, `embedding`, `positions`
        (`settings.replacements`); {} nothing.
    """

    vocab: int
    positions: int = 128
    blocks: int = 6
    width: int = 256
    ff_dim: int = 1024
    dropout: float = 0.1
    norm: str = "post"
    init_std: float | None = None
    extra_linear: bool = False
    mixer: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"mixer": "attention", "heads": 4})
    seed: int = 0
    replaced: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LanguageModelConfig:
        """A config from plain values; an unknown key or a wrong value is a UserError that names it."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise UserError(f"language model: unknown key {key!r}: {hint}")
        config = cls(**values)
        if config.norm not in ("post", "pre"):
            raise UserError(f"language model: norm {config.norm!r} is not known: choose post or pre")
        return config

    @functools.cached_property
    def replacements(self) -> Replacements:
        """`replaced` as types."""
        return replacements_of(self.replaced)

    @property
    def position_table(self) -> bool:
        """Whether a learned position is added to each token."""
        return self.replacements.positions is None or self.replacements.positions.table == "learned"

    def to_dict(self) -> dict[str, Any]:
        """Plain values from which `from_dict` makes the same configuration."""
        values = {**dataclasses.asdict(self), "mixer": dict(self.mixer)}
        if not values["replaced"]:
            del values["replaced"]
        return values

    @functools.cached_property
    def mixer_sizes(self) -> list[Size]:
        """Size of the mixer of each block; one of a user's own is made and tried out for that, with torch."""
        return sizes_of(self.mixer, self.width, self.blocks, self.seed, tokens=self.positions)

    @property
    def counted_from_linear_maps(self) -> bool:
        """Whether the mixer's multiply-adds are those of its linear maps."""
        return any(size.from_linear_maps for size in self.mixer_sizes)

    def parameters(self) -> int:
        """Trainable parameters, the tied head counted once."""
        width, ff_dim = self.width, self.ff_dim
        block = 2 * width * ff_dim + ff_dim + width + 4 * width
        if self.extra_linear:
            block += width * width + width
        block += added(self.replacements, width, ff_dim, 1).parameters
        mixers = sum(size.parameters for size in self.mixer_sizes)
        return (self.vocab + self.positions * self.position_table) * width + self.blocks * block + mixers + 2 * width

    def macs_per_token(self, length: int) -> float:
        """Multiply-adds of the forward pass a token, in blocks of `length` tokens: the maps, attention's products, the head."""
        width = self.width
        block = 2 * width * self.ff_dim + self.extra_linear * width * width
        block += added(self.replacements, width, self.ff_dim, 1, length / 2).macs
        mixers = sum(size.macs_per_frame(length) for size in self.mixer_sizes)
        return self.blocks * block + mixers + self.vocab * width
