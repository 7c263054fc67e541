"""The two tracks of a study side by side: checks without training, and what they trained.

Reads `<run>/agreement.json`, the scores of both tracks, and the second scores of ESPnet's own prefix search.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geomix.files import read_object
from geomix.report.text import interval_text
from geomix.speech.comparison import compare_systems
from geomix.speech.scoring import Score, read_score, read_text
from geomix.training.results import Study, Trained

TRACKS = ("espnet", "own")
Table = tuple[list[str], list[list[str]]]


def has_tracks(study: Study) -> bool:
    """Whether the study runs both tracks."""
    return set(TRACKS) <= set(study.tracks)


def read_checks(study: Study) -> list[dict[str, Any]]:
    """Entries of agreement.json: check, about, value, bound, passed; [] where there is none."""
    path = study.folder / "agreement.json"
    return read_object(path, "checks")["checks"] if path.is_file() else []


def checks_table(study: Study) -> Table:
    """Header and cells of the checks."""
    lines = []
    for entry in read_checks(study):
        verdict = "for information" if entry["bound"] is None else "holds" if entry["passed"] else "MISSED"
        lines.append([entry["check"], entry["about"], _short(entry["value"]), _short(entry["bound"]), verdict])
    return ["check", "what", "value", "bound", "verdict"], lines


def track_table(study: Study) -> Table:
    """Header and cells of each arm's difference between the tracks on each set, with its interval."""
    lines = []
    for arm in study.arms:
        for name in study.sets:
            scores = [_scores(study, track, arm, name) for track in TRACKS]
            if not all(scores):
                continue
            e = compare_systems(*scores, TRACKS, resamples=study.resamples, seed=study.seed)
            rates = [_rate(list(by_seed.values())) for by_seed in scores]
            verdict = {"a better": "espnet better", "b better": "own better"}.get(e["verdict"], e["verdict"])
            lines.append(
                [arm, name, *(f"{rate:.2f}" for rate in rates), f"{e['difference']:+.2f}"]
                + [interval_text(e["low"], e["high"]), interval_text(e["t_low"], e["t_high"])]
                + [str(e["speakers"]), f"{e['seeds_a']} / {e['seeds_b']}", verdict]
            )
    header = ["arm", "set", "espnet WER %", "own WER %", "espnet - own, points", "95 % percentile", "95 % t", "speakers", "seeds", "verdict"]  # fmt: skip
    return header, lines


def search_table(study: Study) -> Table:
    """Header and cells of ESPnet's prefix search beside argmax-collapse: the same models, mean over seeds.

    The last column counts the utterances whose argmax-collapse in ESPnet's code and in ours (of the converted weights) is one text.
    """
    lines = []
    for arm in study.arms:
        for name in study.sets:
            argmax, prefix, equal, total = [], [], 0, 0
            for run in _runs(study, "espnet"):
                second = run.folder / "prefix_search" / "score" / f"{name}.tsv"
                if run.arm != arm or run.missing([name]) or not second.is_file():
                    continue
                argmax.append(read_score(run.score_path(name)))
                prefix.append(read_score(second))
                pairs = list(_texts(run.folder, name))
                equal, total = equal + sum(a == b for a, b in pairs), total + len(pairs)
            if argmax:
                rates = _rate(argmax), _rate(prefix)
                same = f"{equal:,} of {total:,}" if total else "-"
                lines.append([arm, name, *(f"{rate:.2f}" for rate in rates), f"{rates[1] - rates[0]:+.2f}", same])
    header = [
        "arm",
        "set",
        "argmax WER %",
        "prefix search WER %",
        "difference, points",
        "same argmax text in both codes",
    ]
    return header, lines


def misses(study: Study) -> list[str]:
    """A sentence for each check that was missed."""
    return [
        f"The tracks do not agree: {entry['check']}, {entry['about']}: {_short(entry['value'])}, bound {_short(entry['bound'])}."
        for entry in read_checks(study)
        if not entry["passed"]
    ]


def _runs(study: Study, track: str) -> Iterator[Trained]:
    for arm in study.arms:
        for seed in study.seeds(track):
            yield study.trained(track, arm, seed)


def _scores(study: Study, track: str, arm: str, name: str) -> dict[int, Score]:
    return {
        run.seed: read_score(run.score_path(name))
        for run in _runs(study, track)
        if run.arm == arm and not run.missing([name])
    }


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
