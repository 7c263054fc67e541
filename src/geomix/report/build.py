"""Building the report of a run."""

from __future__ import annotations

import os
from pathlib import Path

from geomix.errors import UserError
from geomix.files import read_json, write_text
from geomix.report.comparisons import compare_study
from geomix.report.study import Study
from geomix.report.tables import Results, collect_rows, render_markdown, write_csv


def build_report(folder: str | os.PathLike, out: str | os.PathLike | None = None, *, partial: bool = False) -> Results:
    """Write tables.csv, tables.md and figures/ of the run in `folder`, from its scores and records alone.

    `out` is where they go: the run's folder itself, or its `partial/` for a partial report. A full report needs the
    record and scores of every training of the study, parity.json and comparisons.json; what is absent is a `UserError`
    that names it. A partial one takes what is there, compares that, and marks what is missing. The same files give
    the same bytes.
    """
    from geomix.report.figures import draw_figures

    study = Study.read(folder)
    out = Path(out) if out is not None else study.folder / "partial" if partial else study.folder
    rows, missing = collect_rows(study, partial=partial)
    parity = study.folder / "parity.json"
    if partial:
        comparisons = compare_study(folder, partial=True, write=False)
    else:
        comparisons = read_json(study.folder / "comparisons.json")
        found = {(e["track"], e["set"], frozenset((e["a"], e["b"]))) for e in comparisons}
        wanted = len(study.tracks) * len(study.sets) * len(study.arms) * (len(study.arms) - 1) // 2
        if len(found) != wanted:
            raise UserError(
                f"{study.folder / 'comparisons.json'}: holds {len(found)} contrasts where the study has {wanted}: "
                "run the compare step again"
            )
    results = Results(study, rows, read_json(parity) if not partial or parity.is_file() else None, comparisons, missing)
    names = draw_figures(results, out / "figures")
    write_text(out / "tables.csv", write_csv(results))
    write_text(out / "tables.md", render_markdown(results, names))
    return results
