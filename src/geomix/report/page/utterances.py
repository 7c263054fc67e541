"""The utterances of a speech study for the page: references once, and of each hypothesis what is different."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scipy import stats

from geomix.errors import UserError
from geomix.files import read_object
from geomix.report.page.recordings import data_base, recordings_of
from geomix.speech.alignments import AlignedUtterance, align_score
from geomix.speech.manifest import Utterance
from geomix.speech.scoring import read_score, read_text
from geomix.training.results import Study, Trained

QUANTILES = 200  # t quantiles for 1 to so many degrees of freedom; the normal's beyond


def utterance_data(study: Study, out: Path, *, partial: bool) -> dict[str, Any]:
    """`utterances`, `edits`, `audio` and `t` of data.js.

    utterances : columns, each a text with a line an utterance, set by set in the order of their ids
    edits : training -> a text with a line an utterance: what the hypothesis has for the reference, separated by spaces.
        `S3:TWO` stands for TWO in place of word 3 (from 0), `D3` for a word 3 that is not there, `I3:THE` for THE before word 3
    audio : where the recordings lie, a path an utterance; `base` takes the place of a path's $GEOMIX_DATA

    A training without all its scores is left out of a partial page; otherwise it is a `UserError`, as are a score, hypotheses and a
    manifest that do not belong together.
    """
    scored = [t for t in study.trainings if not t.missing(study.sets)]
    if len(scored) < len(study.trainings) and not partial:
        missing = next(t for t in study.trainings if t not in scored)
        raise UserError(
            f"{missing.missing(study.sets)[0]}: no such file, and the page shows it: run the score step, or ask for the partial page"
        )
    columns: dict[str, list[str]] = {name: [] for name in ("id", "speaker", "set", "seconds", "reference", "path")}
    edits: dict[str, list[str]] = {_key(t): [] for t in scored}
    for name in study.sets if scored else ():
        recordings = {r.utterance.id: r for r in recordings_of(study, name, out)}
        utterances = {id: r.utterance for id, r in recordings.items()}
        first: list[AlignedUtterance] = []
        for trained in scored:
            aligned = _aligned(trained, name, utterances)
            edits[_key(trained)] += map(_edits, aligned)
            first = first or aligned
        for u in first:
            reference = [step.reference for step in u.steps if step.reference is not None]
            values = (
                u.id,
                u.speaker,
                name,
                f"{utterances[u.id].seconds:.2f}",
                " ".join(reference),
                recordings[u.id].link,
            )
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return {
        "trainings_scored": [_key(t) for t in scored],
        "utterances": {"number": len(columns["id"])}
        | {key: "\n".join(v) for key, v in columns.items() if key != "path"},
        "edits": {key: "\n".join(lines) for key, lines in edits.items()},
        "audio": {"copied": False, "base": data_base(study), "path": "\n".join(columns["path"])},
        "t": [round(float(q), 5) for q in stats.t.ppf(0.975, range(1, QUANTILES + 1))],
    }


def _key(trained: Trained) -> str:
    return f"{trained.track}/{trained.arm}/{trained.seed}"


def _aligned(trained: Trained, name: str, utterances: Mapping[str, Utterance]) -> list[AlignedUtterance]:
    score_path, text_path = trained.score_path(name), trained.folder / "hyp" / name / "text"
    totals = read_object(score_path.with_suffix(".json"), "words")
    score = read_score(score_path)
    if score.words.errors != totals["words"]["errors"] or [u.id for u in score.utterances] != sorted(utterances):
        raise UserError(
            f"{score_path}: is not of the set's manifest and of the .json beside it: run the score step again"
        )
    normaliser = totals.get("normaliser") or "none"
    references = {id: utterance.text for id, utterance in utterances.items()}
    return align_score(score, references, read_text(text_path), normaliser=normaliser, name=score_path)


def _edits(utterance: AlignedUtterance) -> str:
    """The line of an utterance in `edits`."""
    said, found = 0, []
    for step in utterance.steps:
        if step.kind != "=":
            found.append(f"{step.kind}{said}" + ("" if step.hypothesis is None else f":{step.hypothesis}"))
        said += step.kind != "I"
    return " ".join(found)
