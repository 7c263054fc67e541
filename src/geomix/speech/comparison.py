"""Two systems on one evaluation set: the difference in word error rate, with what is known about its uncertainty."""

from __future__ import annotations

from typing import Any

import numpy as np

from geomix.errors import UserError
from geomix.speech.scoring import Score, by_speaker
from geomix.statistics import crossed_t_interval, mapsswe, outcome, paired_bootstrap, side_of

FEW_SPEAKERS = 20
METHOD = (
    "paired bootstrap over speakers crossed with seeds, percentile 95 %; t-interval from the seed and speaker variance "
    "components, Satterthwaite degrees of freedom; a tie where either holds zero; MAPSSWE for each pair of seeds; Holm "
    "over the p-values of the t-interval of the planned contrasts of a track on its test sets"
)


def compare_systems(
    a: dict[int, Score], b: dict[int, Score], names: tuple[str, str] = ("a", "b"), *, resamples: int, seed: int
) -> dict[str, Any]:
    """Compare arm a with arm b on one set; each is {training seed: score}.

    Returns an entry of comparisons.json less its track, set and names: difference and ends in WER points (a - b),
    null where there are none (a single speaker).
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

    warnings = []
    if len(words) < 2:
        warnings.append("a single speaker: no interval over speakers, so no verdict but a tie")
    elif len(words) < FEW_SPEAKERS:
        warnings.append(f"only {len(words)} speakers: an interval from so few is rough")
    single = [name for name, arm in zip(names, (a, b), strict=True) if len(arm) == 1]
    if single:
        warnings.append(f"one seed of {' and of '.join(single)}: no variation between seeds in the interval")
    intervals = [(interval.low, interval.high) for interval in (percentile, t)]
    sides = [side_of(*interval) for interval in intervals]
    if sides[0] != sides[1]:
        held = ("t-interval", "percentile interval")[sides[0] == 0]
        warnings.append(f"only the {held} holds zero: called a tie")
    return {
        "difference": percentile.estimate,
        "low": _number(percentile.low),
        "high": _number(percentile.high),
        "t_low": _number(t.low),
        "t_high": _number(t.high),
        "t_df": _number(t.df),
        "p": _number(t.p),
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
        "verdict": outcome(intervals),
        "warnings": warnings,
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
