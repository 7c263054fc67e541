"""`geomix settings`: the resolved configuration, and the pages that are made from the settings."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.files import write_text
from geomix.settings import load, pages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--configfile", nargs="*", type=Path, default=[], metavar="FILE", help="overlays, in order")
    parser.add_argument("--write", action="store_true", help="write config/README.md and config/schema.json instead")


def run(arguments: argparse.Namespace) -> int:
    """Print the configuration with every default filled in, or write the pages."""
    if arguments.write:
        write_text("config/README.md", pages.readme())
        write_text("config/schema.json", pages.schema())
        return 0
    import yaml

    print(yaml.safe_dump(load(*arguments.configfile), sort_keys=False, allow_unicode=True, width=120), end="")
    return 0
