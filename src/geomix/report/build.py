"""Building the report of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomix.errors import UserError
from geomix.files import read_object, read_objects, write_text
from geomix.report.references import reference_rows
from geomix.report.tables import Results, collect_rows, render_markdown, write_csv
from geomix.training.results import Study


def build_report(
    folder: str | os.PathLike,
    out: str | os.PathLike | None = None,
    *,
    partial: Sequence[dict[str, Any]] | None = None,
) -> Results:
    """Write tables.csv, tables.md and figures/ of the run in `folder`, from its scores and records alone.

    `out` is where they go: the run's folder itself, or its `partial/` for a partial report. A full report needs the
    record and scores of every training of the study, comparisons.json and, unless the study has no gate, parity.json;
    what is absent is a `UserError` that names it. A partial report takes what is there and marks what is missing; `partial` is then the
    comparison of what is there, as comparisons.json has it. The same files give the same bytes.
    """
    from geomix.report.figures import draw_figures

    study = Study.read(folder)
    out = Path(out) if out is not None else study.folder / "partial" if partial is not None else study.folder
    rows, missing = collect_rows(study, partial=partial is not None)
    parity_path, path = study.folder / "parity.json", study.folder / "comparisons.json"
    comparisons = partial
    if comparisons is None:
        comparisons = read_objects(path, "a", "b", "set", "track", "difference", "planned")
    # a parity.json of before the gate was taken away says nothing of this study
    gated = study.gate is not None and (parity_path.is_file() or partial is None)
    parity = read_object(parity_path, "sentence", "passed") if gated else None
    references = reference_rows(
        study.folder / "granite", study.sets, resamples=study.resamples, seed=study.seed, partial=partial is not None
    )
    results = Results(study, rows, parity, comparisons, missing, references)
    if partial is None:
        _check_current(results, path)
    names = draw_figures(results, out / "figures")
    write_text(out / "tables.csv", write_csv(results))
    write_text(out / "tables.md", render_markdown(results, names))
    return results


def _check_current(results: Results, path: Path) -> None:
    """Refuse comparisons that are not those of the study's scores as they are now."""
    study = results.study
    found = {(e["track"], e["set"], e["a"], e["b"]): e["difference"] for e in results.comparisons}
    wanted = len(study.tracks) * len(study.sets) * len(study.arms) * (len(study.arms) - 1) // 2
    if len(found) != wanted:
        raise UserError(
            f"{path}: holds {len(found)} contrasts where the study has {wanted}: run the compare step again"
        )
    rates = {(row.track, row.set, row.arm): row.wer.estimate for row in results.rows}
    for (track, name, a, b), difference in found.items():
        now = rates.get((track, name, a), np.nan) - rates.get((track, name, b), np.nan)
        if not abs(now - difference) < 1e-6:
            raise UserError(
                f"{path}: has {difference:+.2f} points for {a} - {b} on {name} ({track}) where the scores give {now:+.2f}: "
                "run the compare step again"
            )
