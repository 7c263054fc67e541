"""`geomix page`: make the results page of a run, which a browser opens from disk."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.errors import UserError
from geomix.report.page import build_page, pages_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a run, results/<run>, of speech, language or algebra"
    )
    parser.add_argument(
        "--audio", action="store_true", help="copy the recordings into the page as MP3, with spectrograms"
    )
    parser.add_argument(
        "--partial", action="store_true", help="what is finished so far, with the tables in FOLDER/partial"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: FOLDER/page (FOLDER/partial/page)")


def run(arguments: argparse.Namespace) -> None:
    """Make the pages of the run's studies and say where they are."""
    folders = pages_in(arguments.folder)
    if arguments.out and len(folders) > 1:
        raise UserError(
            f"--out {arguments.out}: {arguments.folder} has {len(folders)} studies: name one, such as {folders[-1]}"
        )
    for folder in folders:
        index = build_page(folder, arguments.out, audio=arguments.audio or None, partial=arguments.partial)
        size = sum(path.stat().st_size for path in index.parent.rglob("*") if path.is_file())
        print(f"{index}: {size / 1e6:.1f} MB; open it in a browser")
