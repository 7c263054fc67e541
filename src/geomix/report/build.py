"""Building the report of a study, whichever its metric."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_objects, write_text
from geomix.report.language import LanguageReport
from geomix.report.plots import draw_figures
from geomix.report.speech import SpeechReport
from geomix.training.results import WER, Study

Report = SpeechReport | LanguageReport


def build_report(
    folder: str | os.PathLike,
    out: str | os.PathLike | None = None,
    *,
    partial: Sequence[dict[str, Any]] | None = None,
) -> Report:
    """Write tables.csv, tables.md and figures/ of the study in `folder`, from its scores, records and comparisons alone.

    `out` is where they go: the run's folder itself, or its `partial/` for a partial report. A full report needs the
    record and scores of every training of the study, comparisons.json and, unless the study has no gate, parity.json;
    what is absent is a `UserError` that names it. A partial report, of a speech study, takes what is there and marks what is
    missing; `partial` is then the comparison of what is there, as comparisons.json has it. The same files give the same bytes.
    """
    study = Study.read(folder)
    out = Path(out) if out is not None else study.folder / "partial" if partial is not None else study.folder
    if partial is not None:
        if study.metric != WER:
            raise UserError(f"{folder}: a language study has no partial tables: leave --partial out")
        report: Report = SpeechReport.of(study, partial, partial=True)
    else:
        report = _complete(study)
    names = draw_figures(report, out / "figures")
    write_text(out / "tables.csv", report.csv())
    write_text(out / "tables.md", report.page(names))
    return report


def _complete(study: Study) -> Report:
    """The report of a finished study; comparisons that are not those of its measurements as they are now are refused."""
    path = study.folder / "comparisons.json"
    if study.metric == WER:
        key, unit = "difference", "points"
        found = read_objects(path, "a", "b", "set", "track", key, "planned")
        report: Report = SpeechReport.of(study, found, partial=False)
    else:
        key, unit = "log_difference", "in ln(perplexity)"
        found = read_objects(path, "a", "b", "set", key, "planned")
        report = LanguageReport(study, found)
    wanted = len(study.tracks) * len(study.sets) * len(study.arms) * (len(study.arms) - 1) // 2
    if len({(e.get("track", ""), e["set"], e["a"], e["b"]) for e in found}) != wanted:
        raise UserError(
            f"{path}: holds {len(found)} contrasts where the study has {wanted}: run the compare step again"
        )
    measured = report.measured
    for e in found:
        track, name = e.get("track", ""), e["set"]
        a, b = (measured.get((track, name, e[side]), float("nan")) for side in ("a", "b"))
        if not abs(a - b - e[key]) < 1e-6:
            raise UserError(
                f"{path}: has {e[key]:+.2f} {unit} for {e['a']} - {e['b']} on {name}{f' ({track})' if track else ''} where the "
                f"scores and records give {a - b:+.2f}: run the compare step again"
            )
    return report
