"""`geomix anatomy`: the page of a finished run of variants of the pair mixer, such as config/anatomy.yaml's."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.commands.publish import is_published
from geomix.errors import UserError
from geomix.report.anatomy import write_anatomy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="results folder of a finished run, results/<run>")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where anatomy.md is written (default: DIR)")


def run(arguments: argparse.Namespace) -> None:
    """Write anatomy.md, and the figure of learned signs where there are some, and print the page."""
    if is_published(arguments.out or arguments.folder):
        raise UserError(
            f"{arguments.out or arguments.folder}: published results are only written by `geomix publish`: say --out DIR"
        )
    page = write_anatomy(arguments.folder, arguments.out)
    print(page.read_text(encoding="utf-8"))
    print(f"wrote {page}")
