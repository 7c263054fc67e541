"""The two tracks of a study side by side: checks without training, and what they trained.

Reads `<run>/agreement.json`, the scores of both tracks, and the second scores of ESPnet's own prefix search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geomix.files import read_object
from geomix.report.columns import Column, Table, fixed
from geomix.report.text import interval_text, named_verdict
from geomix.speech.comparison import compare_systems
from geomix.speech.scoring import Score, read_score, read_text
from geomix.training.results import Study

TRACKS = ("espnet", "own")


@dataclass(frozen=True)
class Tables:
    """Checks without training; each arm on both tracks; ESPnet's prefix search beside argmax-collapse."""

    checks: Table
    arms: Table
    searches: Table


@dataclass(frozen=True)
class Pair:
    """An arm on a set, measured twice: rates in %; `compared` is an entry of a comparison, `same` counts equal texts of `of`."""

    arm: str
    set: str
    first: float
    second: float
    compared: Mapping[str, Any] = field(default_factory=dict)
    same: int = 0
    of: int = 0


CHECKS = (
    Column("check", lambda e: e["check"]),
    Column("what", lambda e: e["about"]),
    Column("value", lambda e: _short(e["value"])),
    Column("bound", lambda e: _short(e["bound"])),
    Column("verdict", lambda e: "for information" if e["bound"] is None else "holds" if e["passed"] else "MISSED"),
)
_ARM, _SET = Column("arm", lambda pair: pair.arm), Column("set", lambda pair: pair.set)
ARMS = (
    _ARM,
    _SET,
    Column("espnet WER %", lambda pair: pair.first, show=fixed(2)),
    Column("own WER %", lambda pair: pair.second, show=fixed(2)),
    Column("espnet - own, points", lambda pair: pair.compared["difference"], show=fixed(2, "+")),
    Column("95 % percentile", lambda pair: interval_text(pair.compared["low"], pair.compared["high"])),
    Column("95 % t", lambda pair: interval_text(pair.compared["t_low"], pair.compared["t_high"])),
    Column("speakers", lambda pair: pair.compared["speakers"]),
    Column("seeds", lambda pair: f"{pair.compared['seeds_a']} / {pair.compared['seeds_b']}"),
    Column("verdict", lambda pair: named_verdict(pair.compared["verdict"], *TRACKS)),
)
SEARCHES = (
    _ARM,
    _SET,
    Column("argmax WER %", lambda pair: pair.first, show=fixed(2)),
    Column("prefix search WER %", lambda pair: pair.second, show=fixed(2)),
    Column("difference, points", lambda pair: pair.second - pair.first, show=fixed(2, "+")),
    Column("same argmax text in both codes", lambda pair: f"{pair.same:,} of {pair.of:,}" if pair.of else "-"),
)


def has_tracks(study: Study) -> bool:
    """Whether the study runs both tracks."""
    return set(TRACKS) <= set(study.tracks)


def tables(study: Study) -> Tables:
    """The three tables; one without lines for what is not there."""
    return Tables(
        Table.of(CHECKS, read_checks(study)),
        Table.of(ARMS, _arms(study)),
        Table.of(SEARCHES, _searches(study)),
    )


def read_checks(study: Study) -> list[dict[str, Any]]:
    """Entries of agreement.json: check, about, value, bound, passed; [] where there is none."""
    path = study.folder / "agreement.json"
    return read_object(path, "checks")["checks"] if path.is_file() else []


def _arms(study: Study) -> Iterator[Pair]:
    """Each arm's difference between the tracks on each set."""
    for arm in study.arms:
        for name in study.sets:
            scores = [_scores(study, track, arm, name) for track in TRACKS]
            if all(scores):
                compared = compare_systems(*scores, TRACKS, resamples=study.resamples, seed=study.seed)
                yield Pair(arm, name, *(_rate(list(by_seed.values())) for by_seed in scores), compared)


def _searches(study: Study) -> Iterator[Pair]:
    """The same models decoded twice, and the utterances whose argmax-collapse in both code bases is one text."""
    for arm in study.arms:
        for name in study.sets:
            argmax, prefix, equal, total = [], [], 0, 0
            for run in study.of("espnet", arm):
                second = run.folder / "prefix_search" / "score" / f"{name}.tsv"
                if run.missing([name]) or not second.is_file():
                    continue
                argmax.append(read_score(run.score_path(name)))
                prefix.append(read_score(second))
                pairs = list(_texts(run.folder, name))
                equal, total = equal + sum(a == b for a, b in pairs), total + len(pairs)
            if argmax:
                yield Pair(arm, name, _rate(argmax), _rate(prefix), same=equal, of=total)


def misses(study: Study) -> list[str]:
    """A sentence for each check that was missed."""
    return [
        f"The tracks do not agree: {entry['check']}, {entry['about']}: {_short(entry['value'])}, bound {_short(entry['bound'])}."
        for entry in read_checks(study)
        if not entry["passed"]
    ]


def _scores(study: Study, track: str, arm: str, name: str) -> dict[int, Score]:
    return {run.seed: read_score(run.score_path(name)) for run in study.of(track, arm) if not run.missing([name])}


def _rate(scores: list[Score]) -> float:
    """Word error rate in %, errors and words of all scores pooled."""
    words = [utterance.words for score in scores for utterance in score.utterances]
    return 100 * sum(w.errors for w in words) / max(sum(w.reference for w in words), 1)


def _texts(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Each utterance's argmax-collapse by our decoder and by ESPnet's code."""
    files = [folder / "hyp" / name / "text", folder / "espnet_argmax" / name / "text"]
    if all(path.is_file() for path in files):
        ours, theirs = map(read_text, files)
        for utterance in sorted(set(ours) & set(theirs)):
            yield ours[utterance], theirs[utterance]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
