"""`geomix forget`: a run gives up its trainings, and those that no run claims then are removed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geomix.training.store import forget


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("name", metavar="RUN", help="name of the run, as in its configuration")
    parser.add_argument("arms", nargs="*", metavar="ARM", help="arms of the run (default: all, on every track)")
    parser.add_argument(
        "--state", type=Path, default=Path("state"), help="the store of trainings (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Print what was dropped, what was removed and what others keep."""
    done = forget(arguments.state, arguments.name, arguments.arms)
    print(f"{arguments.name} no longer claims {_listed([user.name for user in done.dropped])}.")
    for folder in done.removed:
        print(f"Removed {folder}, which nobody else claims.")
    for stored in done.kept:
        print(f"Kept {stored.folder}, which {_listed(stored.users)} {'claims' if len(stored.users) == 1 else 'claim'}.")


def _listed(names: Sequence[Any]) -> str:
    *most, last = map(str, names)
    return f"{', '.join(most)} and {last}" if most else last
