"""Rows of published checkpoints that were decoded here: in the speech tables for scale, in no comparison."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from geomix.errors import UserError
from geomix.files import read_object, write_text
from geomix.report.columns import Table
from geomix.report.pages import render
from geomix.report.rows import COLUMNS, CSV, Row
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
) -> list[Row]:
    """Rows for the checkpoints below `folder` (results/<run>/granite); `arms` or, without them, all that lie there.

    Ends of an interval are percentiles of `resamples` bootstrap samples of speakers.
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
            note = f"reference: {record['note']}; normaliser {totals['normaliser']}; {record['head']} head"
            rows.append(
                Row(
                    corpus=record["corpus"],
                    track="granite",
                    arm=arm,
                    set=name,
                    seeds=1,
                    speakers=len(words),
                    params=record["parameters"],
                    unmatched=True,
                    wer=bootstrap_rate(errors, words, resamples=resamples, seed=seed),
                    cer=score.characters.rate,
                    words=score.words.reference,
                    substitutions=score.words.substitutions,
                    insertions=score.words.insertions,
                    deletions=score.words.deletions,
                    notes=(note,),
                )
            )
    return rows


def write_reference_tables(rows: Sequence[Row], csv_path: str | Path, markdown_path: str | Path) -> None:
    """Write reference rows as CSV (columns of tables.csv) and as a page."""
    columns = [replace(column, title="checkpoint") if column.name == "arm" else column for column in COLUMNS]
    table = Table.of(columns, rows)
    write_text(csv_path, table.pick(*CSV).csv())
    shown = table.pick("arm", "set", "params", "rate", "cer", "remarks")
    write_text(markdown_path, render("references.md", table=shown))
