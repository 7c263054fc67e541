"""Rows of published checkpoints that were decoded here: in the speech tables for scale, in no comparison."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_object, write_text
from geomix.report.text import markdown_table
from geomix.speech.scoring import by_speaker, read_score
from geomix.statistics import bootstrap_rate


def reference_rows(
    folder: str | os.PathLike,
    sets: Sequence[str],
    *,
    resamples: int,
    seed: int,
    arms: Sequence[str] | None = None,
    partial: bool = False,
) -> list[dict[str, Any]]:
    """Rows for the checkpoints below `folder` (results/<run>/granite); `arms` or, without them, all that lie there.

    Keys are the columns of tables.csv; `wer_low` and `wer_high` are percentiles of `resamples` bootstrap samples of speakers.
    A row whose record or score is absent is a `UserError`; a partial report leaves it out.
    """
    folder, rows = Path(folder), []
    if arms is None:
        arms = sorted(path.parent.parent.name for path in folder.glob("*/seed0/record.json"))
    for arm in arms:
        place = folder / arm / "seed0"
        record = read_object(place / "record.json", "corpus", "parameters", "note", "head")
        for name in sets:
            path = place / "score" / f"{name}.tsv"
            if not (path.is_file() and path.with_suffix(".json").is_file()):
                if partial:
                    continue
                raise UserError(
                    f"{path}: no such file, and the reference row of {arm} needs it: run `snakemake granite`"
                )
            score, totals = read_score(path), read_object(path.with_suffix(".json"), "normaliser", "words")
            if score.words.reference != totals["words"]["reference"] or not score.words.reference:
                raise UserError(
                    f"{path}: has {score.words.reference} reference words, its .json {totals['words']['reference']}: "
                    "remove both and run `snakemake granite` again"
                )
            errors, words = by_speaker([score], [str(path)])
            rate = bootstrap_rate(errors, words, resamples=resamples, seed=seed)
            rows.append(
                {
                    "corpus": record["corpus"], "track": "granite", "arm": arm, "set": name, "seeds": 1,
                    "speakers": len(words), "params": record["parameters"], "unmatched": "true",
                    "wer": f"{rate.estimate:.2f}", "wer_low": f"{rate.low:.2f}", "wer_high": f"{rate.high:.2f}",
                    "cer": f"{score.characters.rate:.2f}", "words": score.words.reference,
                    "substitutions": score.words.substitutions, "insertions": score.words.insertions,
                    "deletions": score.words.deletions,
                    "note": f"reference: {record['note']}; normaliser {totals['normaliser']}; {record['head']} head",
                }
            )  # fmt: skip
    return rows


def write_reference_tables(rows: Sequence[Mapping[str, Any]], csv_path: str | Path, markdown_path: str | Path) -> None:
    """Write reference rows as CSV (columns of tables.csv) and as a Markdown table."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(csv_path, buffer.getvalue())
    lines = [
        [
            row["arm"],
            row["set"],
            f"{row['params']:,}",
            f"{row['wer']} [{row['wer_low']}, {row['wer_high']}]",
            row["cer"],
            row["note"],
        ]
        for row in rows
    ]
    text = [
        "# Granite Speech checkpoints on the study's evaluation sets",
        "",
        "Reference rows: published checkpoints, trained elsewhere on other data; no arm of the study, in no comparison.",
        "",
        *markdown_table(["checkpoint", "set", "parameters", "WER %", "CER %", "note"], lines),
    ]
    write_text(markdown_path, "\n".join(text) + "\n")
