"""t-intervals: of a difference in error rate from seed and speaker variance components, and of log perplexity.

With 3 seeds whose trainings vary as much as the speakers the percentile bootstrap is too narrow (86 to 87 % coverage of a
nominal 95 %, docs/statistics.md), because a spread estimated from three seeds is itself uncertain. The t-interval knows
that through its degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from geomix.statistics.bootstrap import Interval, check_counts


@dataclass(frozen=True)
class TInterval(Interval):
    """A t-interval with its standard error, degrees of freedom and the two-sided p-value of no difference."""

    standard_error: float
    df: float
    p: float


@dataclass(frozen=True)
class PerplexityRatio:
    """ln(perplexity a) - ln(perplexity b) with its interval, and all three as ratios a / b."""

    log: TInterval
    ratio: float
    low: float
    high: float


def crossed_t_interval(errors_a, errors_b, words, *, confidence: float = 0.95) -> TInterval:
    """t-interval of the difference a - b of two corpus error rates (points): `linear_t_interval` of (1, -1)."""
    return linear_t_interval([errors_a, errors_b], (1.0, -1.0), words, confidence=confidence)


def linear_t_interval(
    errors: Sequence, coefficients: Sequence[float], words, *, constant: float = 0.0, confidence: float = 0.95
) -> TInterval:
    """t-interval of sum_i c_i R_i + `constant` (points), R_i the corpus error rate of arm i; seeds crossed with speakers.

    `errors` has one array (seeds of arm i, speakers) an arm, `words` is (speakers,).

    A corpus rate is a ratio, so each count is linearised: x[s, k] = 100 (E[s, k] - R w[k]) K / W is what speaker k
    under seed s adds to the deviation of the rate R. In the crossed two-way layout the variance of the contrast is

        Var = sum_i c_i^2 (var_s(mean_k x_i) / S_i - I_i) + var_k(sum_i c_i mean_s x_i) / K

    where I = MS(seed x speaker) / (S K), which both terms contain, is taken off once; Var never falls below its largest
    single term. Degrees of freedom by Satterthwaite. An arm of one seed has no seed term: the interval then speaks of
    that one model only. A single speaker gives NaN.
    """
    words, *errors = check_counts(words, *errors)
    speakers, total = len(words), words.sum()
    estimate = constant + sum(100 * c * e.mean(0).sum() / total for c, e in zip(coefficients, errors, strict=True))
    if speakers < 2:
        return TInterval(estimate, *[np.nan] * 5)

    parts, interaction, by_speaker, squares_over_df = [], 0.0, np.zeros(speakers), 0.0
    for c, arm in zip(coefficients, errors, strict=True):
        x = linearised(arm, words)
        by_speaker += c * x.mean(0)
        if len(arm) > 1:
            parts.append((c**2 * x.mean(1).var(ddof=1) / len(arm), len(arm) - 1))
            share = c**2 * interaction_mean_square(x) / x.size
            interaction += share
            squares_over_df += share**2 / ((len(arm) - 1) * (speakers - 1))
    parts.append((by_speaker.var(ddof=1) / speakers, speakers - 1))
    variance = max(sum(v for v, _ in parts) - interaction, max(v for v, _ in parts))
    squares_over_df += sum(v**2 / df for v, df in parts)
    return t_interval(estimate, variance, variance**2 / squares_over_df if variance > 0 else 1.0, confidence)


def linearised(errors: np.ndarray, words: np.ndarray) -> np.ndarray:
    """What each speaker under each seed adds to the deviation of the corpus rate (points), (seeds, speakers)."""
    total = words.sum()
    return 100 * (errors - errors.mean(0).sum() / total * words) * len(words) / total


def interaction_mean_square(x: np.ndarray) -> float:
    """Mean square of seed by speaker of a two-way layout (seeds, speakers) of at least two each."""
    residual = x - x.mean(0) - x.mean(1, keepdims=True) + x.mean()
    return float((residual**2).sum() / ((x.shape[0] - 1) * (x.shape[1] - 1)))


def t_interval_log_perplexity(perplexities_a, perplexities_b, *, welch: bool = False, confidence: float = 0.95):
    """t-interval of ln(perplexity) of arm a minus arm b, from one perplexity a seed: a `PerplexityRatio`.

    Delta +- t(df) sqrt(s_a^2 / n_a + s_b^2 / n_b), with s the standard deviation of ln(perplexity) over seeds and
    df = min(n_a, n_b) - 1 (2 for three seeds), the cautious choice; `welch=True` takes Welch's df instead.
    """
    logs = [np.log(np.asarray(p, dtype=float)) for p in (perplexities_a, perplexities_b)]
    for arm in logs:
        if arm.ndim != 1 or len(arm) < 2 or not np.isfinite(arm).all():
            raise ValueError(f"an arm has the perplexities {np.exp(arm).tolist()}: give at least two, all positive")
    parts = [(arm.var(ddof=1) / len(arm), len(arm) - 1) for arm in logs]
    variance = sum(v for v, _ in parts)
    if welch and variance > 0:
        df = variance**2 / sum(v**2 / df for v, df in parts)
    else:
        df = min(df for _, df in parts)
    log = t_interval(logs[0].mean() - logs[1].mean(), variance, df, confidence)
    return PerplexityRatio(log, *np.exp([log.estimate, log.low, log.high]).tolist())


def ratio_method(quantity: str, plural: str) -> str:
    """How two arms are compared by the ratio of a quantity that each seed has one of (`t_interval_log_perplexity`), in words."""
    return (
        f"difference of mean ln({quantity}) over seeds with its 95 % t-interval, degrees of freedom min(n_a, n_b) - 1 (the "
        f"article's), which decides; Welch's beside it; shown as the ratio of {plural}; equal where the 90 % interval lies "
        "within the margin"
    )


def t_interval(estimate: float, variance: float, df: float, confidence: float = 0.95) -> TInterval:
    """The t-interval of an estimate from its variance; without variance there is no certainty, and all is NaN but it."""
    if not variance > 0:
        return TInterval(float(estimate), *[np.nan] * 5)
    error = float(np.sqrt(variance))
    half = float(stats.t.ppf((1 + confidence) / 2, df)) * error
    p = float(2 * stats.t.sf(abs(estimate) / error, df))
    return TInterval(float(estimate), float(estimate - half), float(estimate + half), error, float(df), p)
