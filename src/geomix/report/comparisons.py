"""Differences between systems, with what is known about their uncertainty."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from geomix.errors import UserError
from geomix.files import write_json
from geomix.speech.scoring import Score, by_speaker, read_score
from geomix.statistics import crossed_t_interval, holm, mapsswe, paired_bootstrap
from geomix.training.results import Study

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
    sides = [np.sign(i.low) if i.low * i.high > 0 else 0.0 for i in (percentile, t)]
    if sides[0] != sides[1]:
        held = ("t-interval", "percentile interval")[bool(sides[0] == 0)]
        warnings.append(f"only the {held} holds zero: called a tie")
    side = sides[0] if sides[0] == sides[1] else 0.0
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
        "verdict": {-1.0: "a better", 1.0: "b better", 0.0: "tie"}[side],
        "warnings": warnings,
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def compare_study(folder: str | os.PathLike, *, partial: bool = False, write: bool = True) -> list[dict[str, Any]]:
    """Compare all pairs of a study's arms on all its sets and tracks; write `<folder>/comparisons.json`.

    A planned contrast (a, b) keeps its order; every other pair is marked `planned: false`. Sets on which epochs were
    selected are compared too, but stand outside Holm's family and say so. `partial` takes the arms and seeds that are
    there; otherwise a score that is missing is a `UserError` that names it.
    """
    study = Study.read(folder)
    planned = [pair for pair in study.planned if set(pair) <= set(study.arms)]
    pairs = [
        *planned,
        *(p for p in combinations(study.arms, 2) if p not in planned and p[::-1] not in planned),
    ]
    entries = []
    for track in study.tracks:
        for name in study.sets:
            scores: dict[str, dict[int, Score]] = {}
            for arm in study.arms:
                runs = [study.trained(track, arm, seed) for seed in study.seeds(track)]
                if partial:
                    runs = [run for run in runs if not run.missing([name])]
                scores[arm] = {run.seed: read_score(run.score_path(name)) for run in runs}
            for a, b in pairs:
                if scores[a] and scores[b]:
                    entry = compare_systems(scores[a], scores[b], (a, b), resamples=study.resamples, seed=study.seed)
                    if name not in study.test_sets:
                        entry["warnings"].append("epochs were selected on this set")
                    entries.append(
                        {"track": track, "set": name, "a": a, "b": b, "planned": (a, b) in planned, "holm_p": None}
                        | entry
                    )
        family = [e for e in entries if e["track"] == track and e["planned"] and e["set"] in study.test_sets]
        for entry, p in zip(family, holm([np.nan if e["p"] is None else e["p"] for e in family]), strict=True):
            entry["holm_p"] = _number(p)
    if write:
        write_json(Path(folder) / "comparisons.json", entries)
    return entries
