"""What a trainer asks of the thing that is trained: its batches, its judgement on dev, its size in a person's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn


@dataclass(frozen=True)
class Batch:
    """Keyword arguments of the model's forward, on its device, and their amount of work (audio-seconds, tokens)."""

    inputs: dict[str, torch.Tensor]
    work: float


class Task(Protocol):
    """What is trained: batches that can be asked for by index, a judgement of the model, and the size of the work.

    unit : what `Batch.work` counts, as it stands in the log ("audio_s", "tokens").
    flops_per_unit : floating point operations of a training step per unit of work.
    floor : dev loss of the best guess that ignores the input, or None.
    size : the data in words, said when a training begins.
    smaller_batches : what a person does to make the batches smaller.
    """

    unit: str
    flops_per_unit: float
    floor: float | None
    size: str
    smaller_batches: str

    def batches(self, epoch: int) -> Sequence[Batch]:
        """Batches of an epoch (1 is the first), made when asked for; the i-th depends on (seed, epoch, i) alone."""

    def largest(self) -> Sequence[Batch]:
        """The batches that need the most memory."""

    def describe(self, batch: Batch) -> str:
        """A batch in words, for a person whose memory it does not fit."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Dev metrics of the model, which is in eval mode; they hold the one by which epochs are chosen."""
