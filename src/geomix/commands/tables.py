"""`geomix tables`: rebuild the tables and figures of a results folder from its scores and records."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.commands.publish import is_published
from geomix.errors import UserError
from geomix.report import build_report
from geomix.report.publish import differing
from geomix.studies.comparison import compare_study
from geomix.studies.speech import SPEECH
from geomix.training.results import WER, Study, studies_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        help="results folder of a run, results/<run>; one below results/published is rebuilt and compared, never written to",
    )
    parser.add_argument("--partial", action="store_true", help="take what is there and mark what is missing")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write tables and figures there")


def run(arguments: argparse.Namespace) -> None:
    """Build the report and print its main table; of a published run, say whether it is the same."""
    folder, out = arguments.folder, arguments.out
    if is_published(folder) and out is not None and is_published(out):
        raise UserError(f"--out {out}: published results are only written by `geomix publish`: name another folder")
    if is_published(folder) and out is None:
        if arguments.partial:
            raise UserError(f"{folder}: a published run is whole: leave --partial out, or say with --out where it goes")
        _compare(folder)
        return
    parts = studies_in(folder)
    for part in parts or [folder]:
        _build(part, out and out / part.relative_to(folder), arguments.partial)


def _build(part: Path, out: Path | None, partial: bool) -> None:
    """Build the report of one study of a run and print it."""
    speech = Study.read(part).metric == WER
    found = compare_study(SPEECH, part, partial=True) if partial and speech else [] if partial else None
    print(build_report(part, out, partial=found).text())
    out = out or (part / "partial" if partial else part)
    print(f"\ntables: {out / 'tables.md'}, {out / 'tables.csv'}; figures: {out / 'figures'}")


def _compare(folder: Path) -> None:
    """Print the tables of a published run and whether they are what its scores and records give; not so is a `UserError`."""
    parts = studies_in(folder)
    if not parts:
        raise UserError(f"{folder}: no study.json here: name a published speech or language run")
    different = []
    for part in parts:
        names, text = differing(part)
        print(text)
        different += [str(part / name) for name in names]
    if different:
        raise UserError(
            f"{folder}: not what its scores and records give: {', '.join(different)}: --out DIR writes what they give"
        )
    print(f"\n{folder}: the same as published")
