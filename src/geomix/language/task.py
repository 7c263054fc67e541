"""Causal language modelling as something to train: batches of token blocks, and perplexity on the validation text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from geomix.language.corpus import read_blocks, read_summary
from geomix.language.perplexity import perplexities
from geomix.models.transformer_lm import TransformerLM
from geomix.training.seeding import generator
from geomix.training.task import Batch


class _Batches(Sequence[Batch]):
    """Batches of `size` blocks in a given order, each made when asked for; the last may be short."""

    def __init__(self, blocks: torch.Tensor, order: torch.Tensor, size: int) -> None:
        self._blocks, self._order, self._size = blocks, order, size

    def __len__(self) -> int:
        return -(-len(self._order) // self._size)

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(index)
        chosen = self._order[index * self._size : (index + 1) * self._size]
        blocks = self._blocks[chosen.to(self._blocks.device)].long()
        return Batch({"tokens": blocks[:, :-1], "targets": blocks[:, 1:]}, work=blocks[:, 1:].numel())


class LanguageTask:
    """Batches of token blocks and validation perplexity (a `training.task.Task`).

    floor : cross-entropy in nats of the validation tokens under the training tokens' frequencies, which is what a model
        that has collapsed into a frequency table reaches.
    """

    unit = "tokens"
    smaller_batches = "lower language.training.batch"

    def __init__(
        self, data: str | Path, *, positions: int, batch: int, seed: int, device: torch.device, flops_per_token: float
    ) -> None:
        self.seed, self.batch, self.flops_per_unit = seed, batch, flops_per_token
        self.data, self.device = Path(data), device
        self.summary = read_summary(data)
        self.floor = self.summary["splits"]["valid"]["unigram_cross_entropy"]
        self._splits = {
            split: torch.from_numpy(read_blocks(data, split, positions)).to(device)
            for split in ("train", "valid", "test")
        }

    @property
    def size(self) -> str:
        """The texts in words."""
        counts = ", ".join(f"{part['tokens']:,} {split}" for split, part in self.summary["splits"].items())
        return f"tokens {counts}, unigram entropy {self.summary['unigram_entropy']:.3f} nats"

    def batches(self, epoch: int) -> Sequence[Batch]:
        """All training blocks, in an order drawn from (seed, epoch); the last batch is short, as the recipe keeps it."""
        blocks = self._splits["train"]
        order = torch.randperm(len(blocks), generator=generator(self.seed, "order", epoch))
        return _Batches(blocks, order, self.batch)

    def largest(self) -> Sequence[Batch]:
        """Any full batch: all are of one size."""
        return [self.in_order("train")[0]]

    def describe(self, batch: Batch) -> str:
        """Size of a batch in words."""
        blocks, length = batch.inputs["tokens"].shape
        return f"{blocks} blocks of {length} tokens"

    def evaluate(self, model: TransformerLM) -> dict[str, float]:
        """Validation loss (nats a token) and perplexity: the mean over batches, by which epochs are chosen, and over tokens."""
        both = self.perplexity(model, "valid")
        return {
            "dev_loss": float(np.log(both["token"])),
            "dev_perplexity": both["batch_mean"],
            "dev_perplexity_token": both["token"],
        }

    @torch.no_grad()
    def perplexity(self, model: TransformerLM, split: str) -> dict[str, float]:
        """Both perplexities (`perplexity.perplexities`) of a model in eval mode on a split, blocks in order."""
        losses, tokens = [], []
        for batch in self.in_order(split):
            losses.append(model(**batch.inputs)["loss"])
            tokens.append(batch.work)
        return perplexities(torch.stack(losses).tolist(), tokens)

    def in_order(self, split: str) -> Sequence[Batch]:
        """All blocks of a split as they stand in the text."""
        blocks = self._splits[split]
        return _Batches(blocks, torch.arange(len(blocks)), self.batch)
