"""The comparison of a study's arms, for any metric; and the one of metrics that have a number a seed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from geomix.files import read_object
from geomix.statistics import holm, outcome, t_interval_log_perplexity
from geomix.studies.base import Asked, Kind, training_folder


def compare_study(kind: Kind, folder: str | os.PathLike, *, partial: bool = False) -> list[dict[str, Any]]:
    """Compare all pairs of a study's arms on all its sets and tracks: the content of comparisons.json.

    A planned contrast (a, b) keeps its order; every other pair is marked `planned: false`. Sets on which epochs were
    selected are compared too, but stand outside Holm's family and say so. `partial` takes the arms and seeds that are
    there; otherwise a measurement that is missing is a `UserError` that names it.
    """
    folder, metric = Path(folder), kind.metric
    asked = kind.asked(read_object(folder / "study.json"))
    entries = []
    for track in asked.tracks:
        of_track = []
        for name in asked.sets:
            found = {arm: _measured(kind, folder, asked, track, arm, name, partial) for arm in asked.arms}
            for a, b, planned in contrasts(asked):
                if not (found[a] and found[b]):
                    continue
                head = {"track": track} if track else {}
                head |= {"set": name, "a": a, "b": b, "planned": planned}
                if metric.corrected:
                    head["holm_p"] = None
                entry = metric.compare(found[a], found[b], (a, b), asked.options)
                if name not in asked.test_sets and metric.corrected:
                    entry["warnings"].append("epochs were selected on this set")
                of_track.append(head | entry)
        if metric.corrected:
            _correct([e for e in of_track if e["planned"] and e["set"] in asked.test_sets])
        entries += of_track
    return entries


def contrasts(asked: Asked) -> Iterator[tuple[str, str, bool]]:
    """(a, b, planned) of all pairs of a study's arms, the planned ones first."""
    planned = [pair for pair in asked.planned if set(pair) <= set(asked.arms)]
    yield from ((*pair, True) for pair in planned)
    for pair in combinations(asked.arms, 2):
        if pair not in planned and pair[::-1] not in planned:
            yield (*pair, False)


def _measured(
    kind: Kind, folder: Path, asked: Asked, track: str | None, arm: str, name: str, partial: bool
) -> dict[int, Any]:
    """{seed: measurement} of an arm on a set; of the trainings that are there alone where `partial`."""
    found = {}
    for seed in asked.seeds[track, arm]:
        place = training_folder(folder, track, arm, seed)
        path = place / kind.metric.file.format(set=name)
        if not partial or ((place / "record.json").is_file() and path.is_file()):
            found[seed] = kind.metric.read(path, name)
    return found


def _correct(family: list[dict[str, Any]]) -> None:
    """Put Holm's p into the entries of a family."""
    adjusted = holm([np.nan if entry["p"] is None else entry["p"] for entry in family])
    for entry, p in zip(family, adjusted, strict=True):
        entry["holm_p"] = p if math.isfinite(p) else None


def compare_ratios(
    a: Mapping[int, float], b: Mapping[int, float], names: tuple[str, str], method: str
) -> dict[str, Any]:
    """Compare two arms by a positive number a seed, of which less is better: the ratio a / b of geometric means.

    With two seeds a side it has a t-interval (`low`, `high`) and Welch's.
    """
    values_a, values_b = list(a.values()), list(b.values())
    entry = {
        "seeds_a": len(values_a),
        "seeds_b": len(values_b),
        "log_difference": float(np.mean(np.log(values_a)) - np.mean(np.log(values_b))),
        "method": method,
    }
    entry["ratio"] = float(np.exp(entry["log_difference"]))
    if min(len(values_a), len(values_b)) < 2:
        return {**entry, "verdict": outcome([]), "warnings": ["an arm of one seed: not a measured difference"]}
    t = t_interval_log_perplexity(values_a, values_b)
    welch = t_interval_log_perplexity(values_a, values_b, welch=True)
    return {
        **entry,
        "low": t.low,
        "high": t.high,
        "standard_error": t.log.standard_error,
        "df": t.log.df,
        "p": t.log.p,
        "welch_low": welch.low,
        "welch_high": welch.high,
        "welch_df": welch.log.df,
        "welch_p": welch.log.p,
        "verdict": outcome([(t.low, t.high)], names, null=1.0),
        "warnings": [],
    }
