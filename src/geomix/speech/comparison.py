"""Two systems on one evaluation set: the difference in word error rate, with what is known about its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from geomix.errors import UserError
from geomix.speech.scoring import Score, by_speaker
from geomix.statistics import TInterval, crossed_t_interval, linear_t_interval, mapsswe, paired_bootstrap
from geomix.statistics.verdicts import LEAST_SPEAKERS, ninety_percent, smallest_difference, smallest_margin, verdict_of

FEW_SPEAKERS = 20
METHOD = (
    "t-interval from the seed and speaker variance components, Satterthwaite degrees of freedom, which decides; equal "
    "where its 90 % interval lies within the margin; beside it the paired bootstrap over speakers crossed with seeds, "
    "percentile 95 %, and MAPSSWE for each pair of seeds; Holm over the p-values of the t-interval of the planned "
    "contrasts of a track on its test sets"
)


def compare_systems(
    a: dict[int, Score],
    b: dict[int, Score],
    names: tuple[str, str] = ("a", "b"),
    *,
    resamples: int,
    seed: int,
    margin: float | None = None,
) -> dict[str, Any]:
    """Compare arm a with arm b on one set; each is {training seed: score}. `margin` is in points of WER.

    Returns an entry of comparisons.json less its track, set and names: difference and ends in WER points (a - b),
    null where there are none (a single speaker, or differences that do not vary).
    """
    scores = [*a.values(), *b.values()]
    labels = [
        f"{name} (seed {s})" if len(arm) > 1 else name for name, arm in zip(names, (a, b), strict=True) for s in arm
    ]
    errors, words = by_speaker(scores, labels)
    errors_a, errors_b = errors[: len(a)], errors[len(a) :]
    if not words.sum():
        raise UserError(f"{labels[0]}: its reference has no words: a word error rate needs some")
    percentile = paired_bootstrap(errors_a, errors_b, words, resamples=resamples, seed=seed)
    t = crossed_t_interval(errors_a, errors_b, words)
    tests = [
        (seed_a, seed_b, mapsswe([u.alignment for u in x.utterances], [u.alignment for u in y.utterances]))
        for seed_a, x in a.items()
        for seed_b, y in b.items()
    ]

    low_90, high_90 = ninety_percent(t)
    return {
        "difference": percentile.estimate,
        "low": _number(percentile.low),
        "high": _number(percentile.high),
        "t_low": _number(t.low),
        "t_high": _number(t.high),
        "t_df": _number(t.df),
        "t90_low": _number(low_90),
        "t90_high": _number(high_90),
        "margin": margin,
        "smallest_difference": _number(smallest_difference(t.standard_error, t.df)),
        "smallest_margin": _number(smallest_margin(t.standard_error, t.df)),
        "p": _number(t.p) if len(words) >= LEAST_SPEAKERS else None,
        "p_improvement": _number(percentile.p_improvement),
        "mapsswe": [
            {"seed_a": i, "seed_b": j, "p": _number(test.p), "z": _number(test.z), "segments": test.segments}
            for i, j, test in tests
        ],
        "speakers": len(words),
        "seeds_a": len(a),
        "seeds_b": len(b),
        "resamples": resamples,
        "method": METHOD,
        "verdict": verdict_of(t, margin=margin, seeds=(len(a), len(b)), speakers=len(words)),
        "warnings": _warnings(t, len(words), [n for n, arm in zip(names, (a, b), strict=True) if len(arm) == 1]),
    }


def _warnings(t: TInterval, speakers: int, of_one_seed: Sequence[str]) -> list[str]:
    """What an interval from so few speakers, without a spread, or without a second seed of some arms, does not say."""
    warnings = []
    if speakers < LEAST_SPEAKERS:
        warnings.append(f"{speakers} speaker{'s' * (speakers > 1)}: too few for a verdict")
    elif not t.standard_error > 0:
        warnings.append("the differences do not vary over speakers: no interval, so no verdict")
    elif speakers < FEW_SPEAKERS:
        warnings.append(f"only {speakers} speakers: an interval from so few is rough")
    if of_one_seed:
        warnings.append(f"one seed of {' and of '.join(of_one_seed)}: no variation between seeds in the interval")
    return warnings


def rate_form(
    coefficients: Mapping[str, float], constant: float, scores: Mapping[str, dict[int, Score]]
) -> TInterval | None:
    """95 % t-interval of a linear form of arms' WERs (points); None for an arm of one seed or too few speakers."""
    arms = list(coefficients)
    if any(len(scores[arm]) < 2 for arm in arms):
        return None
    labels = [f"{arm} (seed {seed})" for arm in arms for seed in scores[arm]]
    errors, words = by_speaker([score for arm in arms for score in scores[arm].values()], labels)
    if len(words) < LEAST_SPEAKERS:
        return None
    ends = np.cumsum([len(scores[arm]) for arm in arms])[:-1]
    return linear_t_interval(np.split(errors, ends), list(coefficients.values()), words, constant=constant)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
