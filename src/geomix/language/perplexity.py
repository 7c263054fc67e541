"""Perplexity, both ways of averaging it, and the unigram table that a collapsed model falls back to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def perplexities(losses: Sequence[float], tokens: Sequence[int]) -> dict[str, float]:
    """Perplexity from each batch's mean loss (nats) and its number of tokens.

    batch_mean : exp of the mean of the batch means. A short last batch weighs as much as a full one; it is what the
        re-implementation that reproduced [Zhang2025]'s Transformer ([Tested2026]) reports, so parity is judged by it.
    token : exp of the mean over tokens.
    """
    return {
        "batch_mean": math.exp(sum(losses) / len(losses)),
        "token": math.exp(sum(loss * n for loss, n in zip(losses, tokens, strict=True)) / sum(tokens)),
    }


def unigram_entropy(tokens: np.ndarray) -> float:
    """Entropy in nats of the token frequencies: the loss on `tokens` of the best guess that ignores the input."""
    share = np.bincount(tokens) / len(tokens)
    share = share[share > 0]
    return float(-(share * np.log(share)).sum())


def cross_entropy_of_unigrams(train: np.ndarray, tokens: np.ndarray, vocabulary: int) -> float:
    """Mean of -ln p(token) in nats over `tokens`, p being the frequencies in `train` with one added to each count."""
    counts = np.bincount(train, minlength=vocabulary) + 1
    return float(-np.log(counts / counts.sum())[tokens].mean())
