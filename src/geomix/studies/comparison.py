"""The comparison of a study's arms, for any metric; and the one of metrics that have a number a seed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from geomix.settings.predicates import parse
from geomix.statistics import TInterval, holm, ratio_method, t_interval, t_interval_log_perplexity
from geomix.statistics.verdicts import TWO_MODELS, judge, named, smallest_difference, smallest_margin, verdict_of
from geomix.studies.base import Judged, Kind, Metric
from geomix.training.results import Study, Trained


def compare_study(kind: Kind, folder: str | os.PathLike, *, partial: bool = False) -> list[dict[str, Any]]:
    """Compare all pairs of a study's arms on all its sets and tracks: the content of comparisons.json.

    A planned contrast (a, b) keeps its order; every other pair is marked `planned: false`. Sets on which epochs were
    selected are compared too, but stand outside Holm's family and say so. `partial` takes the arms and seeds that are
    there; otherwise a measurement that is missing is a `UserError` that names it.
    """
    study, metric = Study.read(folder), kind.metric
    entries = []
    for track in study.tracks:
        of_track = []
        for name in study.sets:
            found = {arm: _measured(metric, study.of(track, arm), name, partial) for arm in study.arms}
            for a, b, planned in contrasts(study):
                if not (found[a] and found[b]):
                    continue
                head = {"track": track} if track else {}
                head |= {"set": name, "a": a, "b": b, "planned": planned}
                entry = metric.compare(found[a], found[b], (a, b), study)
                if metric.corrected:
                    head["holm_p"] = None
                    if name not in study.test_sets:
                        entry["warnings"].append("epochs were selected on this set")
                of_track.append(head | entry)
        if metric.corrected:
            _correct([e for e in of_track if e["planned"] and e["set"] in study.test_sets])
        entries += of_track
    return entries


def contrasts(study: Study) -> Iterator[tuple[str, str, bool]]:
    """(a, b, planned) of all pairs of a study's arms, the planned ones first."""
    planned = [pair for pair in study.planned if set(pair) <= set(study.arms)]
    yield from ((*pair, True) for pair in planned)
    for pair in combinations(study.arms, 2):
        if pair not in planned and pair[::-1] not in planned:
            yield (*pair, False)


def _measured(metric: Metric, trainings: list[Trained], name: str, partial: bool) -> dict[int, Any]:
    """{seed: measurement} on a set; of the trainings that are there alone where `partial`."""
    if partial:
        there = lambda t: not t.missing([]) and (t.folder / metric.file.format(set=name)).is_file()
        trainings = [trained for trained in trainings if there(trained)]
    return {trained.seed: metric.read(trained, name) for trained in trainings}


def _correct(family: list[dict[str, Any]]) -> None:
    """Put Holm's p into the entries of a family."""
    adjusted = holm([np.nan if entry["p"] is None else entry["p"] for entry in family])
    for entry, p in zip(family, adjusted, strict=True):
        entry["holm_p"] = p if math.isfinite(p) else None


def judge_hypothesis(kind: Kind, study: Study) -> list[dict[str, Any]]:
    """Each predicate of a study's hypothesis judged on each track and test set, where all its arms are there.

    A list of {text, holds, track, set, outcome}; a sentence without a predicate is not judged and not listed.
    """
    metric, found = kind.metric, []
    judged = [(e, parse(e["holds"], study.settings["arms"])) for e in study.hypothesis if e["holds"] is not None]
    judged = [(expected, predicate) for expected, predicate in judged if set(predicate.arms) <= set(study.arms)]
    wanted = {arm for _, predicate in judged for arm in predicate.arms}
    for track in study.tracks:
        for name in study.test_sets:
            measured = {arm: _measured(metric, study.of(track, arm), name, partial=True) for arm in wanted}
            for expected, predicate in judged:
                rates = {arm: measured[arm] for arm in predicate.arms}
                outcome = judge(
                    predicate,
                    lambda form, rates=rates: metric.form(form.coefficients, form.constant, rates),
                    lambda rates=rates: metric.difference(*rates.values()),
                    metric.margin(study),
                )
                found.append({**expected, "track": track or None, "set": name, "outcome": outcome})
    return found


def mean_form(
    coefficients: Mapping[str, float], constant: float, values: Mapping[str, Mapping[int, float]]
) -> TInterval | None:
    """95 % t-interval of a linear form of arms' means over seeds, degrees of freedom the least of any arm's."""
    arms = [(c, np.array(list(values[arm].values()))) for arm, c in coefficients.items()]
    if any(len(x) < 2 for _, x in arms):
        return None
    variance = sum(c**2 * x.var(ddof=1) / len(x) for c, x in arms)
    return t_interval(constant + sum(c * x.mean() for c, x in arms), variance, min(len(x) for _, x in arms) - 1)


def log_difference(a: Mapping[int, float], b: Mapping[int, float]) -> TInterval | None:
    """95 % t-interval of the difference of mean logarithms over seeds."""
    return t_interval_log_perplexity(list(a.values()), list(b.values())).log if min(len(a), len(b)) > 1 else None


def number_a_seed(
    *,
    name: str,
    plural: str,
    file: str,
    read: Callable[[Trained, str], float],
    judged_sets: Callable[[Mapping[str, Any]], Sequence[str]],
    judge: Callable[[Mapping[str, Any], Mapping[str, float], str], Judged],
) -> Metric:
    """A metric of which each training has one positive number a set, less being better: arms are compared by their ratio."""
    method = ratio_method(name, plural)
    return Metric(
        name=name,
        file=file,
        read=read,
        value=read,
        judged_sets=judged_sets,
        judge=judge,
        compare=lambda a, b, names, study: compare_ratios(a, b, names, method, study.margin),
        form=mean_form,
        difference=log_difference,
        margin=lambda study: study.margin and math.log(study.margin),
    )


def compare_ratios(
    a: Mapping[int, float], b: Mapping[int, float], names: tuple[str, str], method: str, margin: float | None = None
) -> dict[str, Any]:
    """Compare two arms by a positive number a seed, of which less is better: the ratio a / b of geometric means.

    With two seeds a side it has a t-interval (`low`, `high`) and Welch's. `margin` is the ratio below which arms count
    as equal.
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
        return {**entry, "verdict": TWO_MODELS, "warnings": ["an arm of one seed: no spread between trainings"]}
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
        "margin": margin,
        "smallest_ratio": math.exp(smallest_difference(t.log.standard_error, t.log.df)),
        "smallest_margin": math.exp(smallest_margin(t.log.standard_error, t.log.df)),
        "verdict": named(
            verdict_of(t.log, margin=margin and math.log(margin), seeds=(len(values_a), len(values_b))), *names
        ),
        "warnings": [],
    }
