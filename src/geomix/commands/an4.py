"""`geomix an4`: CMU AN4 in the form used here, from its public archive."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    from geomix.speech.corpora.an4 import URL

    parser.add_argument(
        "archive", type=Path, metavar="ARCHIVE", help=f"an4_sphere.tar.gz of {URL}, or its folder unpacked"
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where train/ and test/ go: $GEOMIX_DATA/an4")


def run(arguments: argparse.Namespace) -> None:
    """Convert the archive and print what was written."""
    from geomix.speech.corpora.an4 import complete, convert

    counts = convert(arguments.archive, arguments.folder)
    written = " and ".join(f"{count} utterances to {split}" for split, count in counts.items())
    print(f"{arguments.folder}: {written}" + ("" if complete(counts) else "; the published corpus has 948 and 130"))
