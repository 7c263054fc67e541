"""Token embeddings whose numbers are multivectors ([Parslow2026], section 6.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geomix.algebra import Algebra
from geomix.models.layers.grades import Graded


class MultivectorEmbedding(nn.Module):
    """Token ids to multivectors (..., channels, dim); with `flat`, to (..., channels x dim), as nn.Embedding gives.

    `weight` is the (vocab, channels x dim) table, so that an output head can be tied to it.
    """

    def __init__(self, vocab: int, channels: int, algebra: Algebra, flat: bool = False) -> None:
        super().__init__()
        self.algebra, self.channels, self.flat = algebra, channels, flat
        self.table = Graded(algebra, vocab, channels)
        for parameter in self.table.parameters():
            nn.init.normal_(parameter)

    @property
    def weight(self) -> Tensor:
        """(vocab, channels x dim), in the storage type."""
        return self.table().flatten(1).to(self.table.of(self.algebra.grades[0]).dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """Integer ids (...) to multivectors."""
        whole = torch.cat(
            [
                F.embedding(ids, self.table.of(g).flatten(1)).unflatten(-1, (self.channels, -1))
                for g in self.algebra.grades
            ],
            -1,
        )
        return whole.flatten(-2) if self.flat else whole
