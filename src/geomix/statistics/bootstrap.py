"""Percentile bootstrap over speakers and training seeds, of one system's error rate or the difference of two.

Utterances of a speaker are not independent, so whole speakers are drawn (Liu & Peng, arXiv 1912.09508; Bisani & Ney,
ICASSP 2004, for the paired difference and the probability of improvement). All seeds of an arm decode the same
speakers: seeds and speakers are crossed. A replicate therefore draws the speakers once, the same for both arms, and
for each arm the seeds once, the same for all speakers. Drawing seeds anew for each speaker (nested) would average the
seeds' spread away and cover 67 to 86 % instead of 95 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval, in its own unit; NaN ends where there is none."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Interval):
    """A difference a - b of error rates in points; `p_improvement` is the share of replicates in which a makes
    fewer errors, ties counting half."""

    p_improvement: float


def check_counts(words: np.ndarray, *errors: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return `words` (speakers,) and each errors array as (seeds, speakers) floats, or raise a `ValueError`."""
    words = np.asarray(words, dtype=float)
    if words.ndim != 1 or not np.isfinite(words).all() or not words.sum() > 0 or (words < 0).any():
        raise ValueError("words is not a list of reference word counts, one a speaker, with a positive sum")
    arrays = [np.atleast_2d(np.asarray(e, dtype=float)) for e in errors]
    for e in arrays:
        if not (np.isfinite(e) & (e >= 0)).all():
            raise ValueError("errors holds a number that is no count: give finite numbers, none below 0")
        if e.ndim != 2 or e.shape[1] != len(words) or not len(e):
            raise ValueError(f"errors has the shape {e.shape}: give (seeds, {len(words)} speakers)")
    return (words, *arrays)


def bootstrap_rate(errors, words, *, resamples: int = 10_000, seed: int = 0, confidence: float = 0.95) -> Interval:
    """Percentile interval of a corpus error rate in %, mean over seeds.

    `errors` is (seeds, speakers) or (speakers,), `words` (speakers,). The ends are NaN for a single speaker.
    """
    words, errors = check_counts(words, errors)
    estimate = 100 * errors.mean(0).sum() / words.sum()
    if len(words) < 2:
        return Interval(estimate, np.nan, np.nan)
    rates = _replicates(words, [errors], resamples, seed)
    return Interval(estimate, *_percentiles(rates, confidence))


def paired_bootstrap(
    errors_a, errors_b, words, *, resamples: int = 10_000, seed: int = 0, confidence: float = 0.95
) -> Difference:
    """Percentile interval of the difference a - b of two corpus error rates, in points.

    `errors_a` is (seeds of a, speakers), `errors_b` (seeds of b, speakers), `words` (speakers,): reference words.
    One seed of an arm means that its seed is not resampled. The ends are NaN for a single speaker.
    """
    words, errors_a, errors_b = check_counts(words, errors_a, errors_b)
    estimate = 100 * (errors_a.mean(0).sum() - errors_b.mean(0).sum()) / words.sum()
    if len(words) < 2:
        return Difference(estimate, np.nan, np.nan, np.nan)
    differences = _replicates(words, [errors_a, -errors_b], resamples, seed)
    better = np.mean(differences < 0) + np.mean(differences == 0) / 2
    return Difference(estimate, *_percentiles(differences, confidence), float(better))


def _replicates(words: np.ndarray, arms: list[np.ndarray], resamples: int, seed: int) -> np.ndarray:
    """Sum over `arms` of the error rate (%) of each replicate: (resamples,)."""
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}: ask for at least 1")
    generator = np.random.default_rng(seed)
    speakers = len(words)
    # how often each speaker, and each seed of an arm, is drawn: drawing with replacement as counts
    drawn = generator.multinomial(speakers, np.full(speakers, 1 / speakers), size=resamples).astype(float)
    errors = np.zeros(resamples)
    for arm in arms:
        seeds = len(arm)
        weights = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
        errors += ((drawn @ arm.T) * weights).sum(1)
    total = drawn @ words
    said = total > 0  # a draw of nothing but speakers without a reference word has no rate
    return 100 * errors[said] / total[said]


def _percentiles(values: np.ndarray, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
