"""`geomix tables`: rebuild the tables and figures of a results folder from its scores and records."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.report import build_report
from geomix.report.tables import render_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="results folder of a run, results/<run>")
    parser.add_argument("--partial", action="store_true", help="take what is there and mark what is missing")


def run(arguments: argparse.Namespace) -> None:
    """Build the report and print its main table."""
    results = build_report(arguments.folder, partial=arguments.partial)
    out = arguments.folder / "partial" if arguments.partial else arguments.folder
    print(render_text(results))
    print(f"\ntables: {out / 'tables.md'}, {out / 'tables.csv'}; figures: {out / 'figures'}")
