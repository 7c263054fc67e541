"""The pieces of the speed probe and their sizes; Snakemake reads them when it parses the rules, so that nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OFFSETS = (1, 2, 4, 8, 12, 16)
ARMS: dict[str, dict[str, Any]] = {
    "attention": {"mixer": {"mixer": "attention", "heads": 4}},
    "grassmann": {"mixer": {"mixer": "pair", "kind": "wedge", "rank": 32}},
    "symmetric": {"mixer": {"mixer": "pair", "kind": "symmetric", "rank": 32}},
    "no_mixer": {"mixer": {"mixer": "none"}, "ff_dim": 1344},
}


@dataclass(frozen=True)
class Sizes:
    """What the probe measures: blocks of `lengths`, arms on `utterances` of `seconds` with `units` tokens, encoders on longer audio."""

    lengths: tuple[int, ...] = (128, 512, 4096)
    tokens: int = 16_384
    width: int = 256
    rank: int = 32
    ff_dim: int = 1024
    heads: int = 4
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: ARMS)
    utterances: int = 16
    seconds: float = 12.7
    units: int = 40
    vocabulary: int = 5000
    encoder_seconds: tuple[float, ...] = (12.7, 60.0, 300.0)

    @property
    def pieces(self) -> tuple[str, ...]:
        """Names of all pieces, each measured in a process of its own."""
        return (
            *(f"block-{length}" for length in self.lengths),
            *(f"step-{arm}" for arm in self.arms),
            *(f"encoder-{arm}-{seconds:g}" for arm in self.arms for seconds in self.encoder_seconds),
            "ctc",
            "language-naive",
            "language-chunked",
        )


PIECES = Sizes().pieces
