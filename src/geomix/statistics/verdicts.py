"""What a contrast of two arms may be said to have shown, and what it could have shown.

The t-interval decides. A 95 % interval without zero names the better arm; a 90 % interval inside +-margin says *equal*
(two one-sided tests at 5 %, Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987); anything else is
*cannot tell*. One seed on a side says nothing about arms, only about two models: an interval that lacks the seeds'
spread covers 30 to 91 % instead of 95 %. Seed variances are never pooled over arms: where one arm varies four times as much
as another, pooling covers 88 to 90 % (docs/statistics.md has the simulation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import optimize, stats

from geomix.statistics.intervals import TInterval, interaction_mean_square, linearised

A_BETTER, B_BETTER, EQUAL, CANNOT_TELL = "a better", "b better", "equal", "cannot tell"
TWO_MODELS, NO_VERDICT = "these two models only", "no verdict"
WITHIN = " (within the margin)"
HOLDS, CONTRADICTED, OPEN = "holds", "contradicted", "open"
PLANES, SYMMETRIC, AS_BEGAN = "planes", "symmetric", "as they began"
POWER = 0.8
_GRID = 4000
LEAST_SPEAKERS = 3
"""With fewer, a spread over speakers cannot be estimated well enough for any verdict."""


def verdict_of(t: TInterval, *, margin: float | None, seeds: tuple[int, int], speakers: int | None = None) -> str:
    """The verdict on a difference a - b, of which less is better, from its 95 % t-interval.

    `margin` is in the unit of the interval (for perplexity: the logarithm of the ratio), null where the study states
    none; `seeds` are the trainings of each side; `speakers` is null for a metric without speakers. Returns one of the
    names above; a better arm whose whole 90 % interval lies within the margin says so.
    """
    if min(seeds) < 2:
        return TWO_MODELS
    if (speakers is not None and speakers < LEAST_SPEAKERS) or not t.standard_error > 0:
        return NO_VERDICT
    within = margin is not None and lies_within(t, margin)
    if t.low > 0 or t.high < 0:
        return (A_BETTER if t.high < 0 else B_BETTER) + (WITHIN if within else "")
    return EQUAL if within else CANNOT_TELL


def named(verdict: str, a: str, b: str) -> str:
    """A verdict with the names of the arms in place of a and b."""
    for side, name in ((A_BETTER, a), (B_BETTER, b)):
        if verdict.startswith(side):
            return f"{name} better{verdict.removeprefix(side)}"
    return verdict


def ninety_percent(t: TInterval) -> tuple[float, float]:
    """The ends of the 90 % interval of the same estimate: outside them each one-sided test at 5 % refuses."""
    half = stats.t.ppf(0.95, t.df) * t.standard_error
    return t.estimate - half, t.estimate + half


def lies_within(t: TInterval, margin: float) -> bool:
    """Whether two one-sided tests at 5 % refuse a difference of `margin` or more either way."""
    low, high = ninety_percent(t)
    return bool(-margin < low and high < margin)


def smallest_difference(standard_error: float, df: float, *, power: float = POWER) -> float:
    """The true difference that the two-sided 5 % test of this standard error finds with the given power; NaN without one."""
    if not (standard_error > 0 and df > 0):
        return float("nan")
    critical = stats.t.ppf(0.975, df)
    # scipy's noncentral t gives NaN for few degrees of freedom: the mean over the estimated spread instead, on a grid of it
    spread = np.sqrt(stats.chi2.ppf((np.arange(_GRID) + 0.5) / _GRID, df) / df)

    def lack(shift: float) -> float:
        return float(
            np.mean(stats.norm.sf(critical * spread - shift) + stats.norm.cdf(-critical * spread - shift)) - power
        )

    high = critical + stats.t.ppf(power, df) + 1
    while lack(high) < 0:  # few degrees of freedom: the noncentral t is skewed
        high *= 2
    return float(standard_error * optimize.brentq(lack, 0, high))


def smallest_margin(standard_error: float, df: float, *, power: float = POWER) -> float:
    """The margin within which two equal arms are shown equal with the given power; NaN without a standard error."""
    if not (standard_error > 0 and df > 0):
        return float("nan")
    return float(standard_error * (stats.t.ppf(0.95, df) + stats.t.ppf((1 + power) / 2, df)))


@dataclass(frozen=True)
class Components:
    """Variance components of a difference of two arms, in squared points of WER.

    `seed` is one arm's variance between trainings, `speaker` the variance between speakers of the paired difference,
    `interaction` one arm's variance of seed by speaker (with the noise of a finite text).
    """

    seed: float
    speaker: float
    interaction: float

    def precision(self, seeds: int, speakers: int) -> tuple[float, float]:
        """(standard error, degrees of freedom) of the difference of two arms with so many seeds and speakers each."""
        if seeds < 2 or speakers < 2:
            return float("nan"), float("nan")
        between = (self.seed + self.interaction / speakers) / seeds
        shared = self.interaction / (seeds * speakers)
        over_speakers = (self.speaker + 2 * self.interaction / seeds) / speakers
        variance = 2 * between + over_speakers - 2 * shared
        squares = (
            2 * between**2 / (seeds - 1)
            + over_speakers**2 / (speakers - 1)
            + 2 * shared**2 / ((seeds - 1) * (speakers - 1))
        )
        return float(np.sqrt(variance)), float(variance**2 / squares) if squares else float("nan")


def components(errors_a, errors_b, words) -> Components | None:
    """Variance components of a recorded contrast: error counts (seeds, speakers) of each arm; None with one seed or speaker.

    Moment estimates, none below zero.
    """
    a, b = (linearised(np.asarray(e, float), np.asarray(words, float)) for e in (errors_a, errors_b))
    if min(len(a), len(b)) < 2 or a.shape[1] < 2:
        return None
    speakers = a.shape[1]
    interaction = float(np.mean([interaction_mean_square(x) for x in (a, b)]))
    seed = float(np.mean([x.mean(1).var(ddof=1) for x in (a, b)])) - interaction / speakers
    speaker = float((a.mean(0) - b.mean(0)).var(ddof=1)) - interaction * (1 / len(a) + 1 / len(b))
    return Components(max(seed, 0.0), max(speaker, 0.0), interaction)


class Form(Protocol):
    """A linear form of the arms' rates."""

    def plus(self, other: Form, times: float) -> Form: ...
    def times(self, factor: float) -> Form: ...


class Predicate(Protocol):
    """`linear > 0`; `linear / over > bound` where `over` is given; `linear` equal to zero where `equal` is."""

    linear: Form
    over: Form | None
    bound: float
    equal: bool


def judge(
    predicate: Predicate,
    interval: Callable[[Form], TInterval | None],
    difference: Callable[[], TInterval | None] = lambda: None,
    margin: float | None = None,
) -> str:
    """`holds`, `contradicted` or `open`.

    `interval` gives the 95 % t-interval of a form of the rates, `difference` that of the two arms of an equality, in the
    unit of `margin`; None where the runs give none. A linear predicate holds when its interval lies above zero and is
    contradicted when it lies below. A quotient is open when the interval of its denominator holds zero. Equality holds
    when the 90 % interval of the difference lies within +-margin and is contradicted when the 95 % interval lies outside
    it (without a margin: when it leaves out zero).
    """
    if predicate.equal:
        t = difference()
        if t is None or not t.standard_error > 0:
            return OPEN
        if margin is not None and lies_within(t, margin):
            return HOLDS
        return CONTRADICTED if t.low > (margin or 0.0) or t.high < -(margin or 0.0) else OPEN
    form = predicate.linear
    if predicate.over is not None:
        sign = _side(interval(predicate.over))
        if not sign:
            return OPEN
        form = form.plus(predicate.over, -predicate.bound).times(sign)
    return {1: HOLDS, -1: CONTRADICTED, 0: OPEN}[_side(interval(form))]


def side_of_dials(ends: Sequence[tuple[float, TInterval | None]]) -> str:
    """On which side of zero trained signs end, wherever they began: `planes` (below), `symmetric`, `as they began` or `cannot tell`.

    ends : of each dial its first value and the 95 % t-interval of the mean of its last ones over seeds; None with one seed.
    A side is said only of dials that began on both sides and all end on it; *as they began*: each ends where it began.
    """
    sides = {_side(t) for _, t in ends}
    if not {-1, 1} <= {np.sign(start) for start, _ in ends}:
        return CANNOT_TELL
    if sides in ({-1}, {1}):
        return PLANES if sides == {-1} else SYMMETRIC
    return AS_BEGAN if all(_side(t) == np.sign(start) for start, t in ends if start) else CANNOT_TELL


def _side(t: TInterval | None) -> int:
    """1 or -1 where the interval lies on one side of zero, else 0 (NaN ends too)."""
    return 0 if t is None else int(t.low > 0) - int(t.high < 0)
