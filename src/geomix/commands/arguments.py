"""Command-line arguments that commands share, and their types: argparse shows what they refuse as its own sentence."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import write_json


def add_reference(parser: argparse.ArgumentParser) -> None:
    """The reference texts, as `geomix.speech.scoring.read_reference` takes them."""
    parser.add_argument(
        "reference",
        type=Path,
        metavar="REF",
        help="Kaldi text file, `utterance-id WORD WORD` a line, or a manifest (.tsv), as in data/<corpus>/manifest",
    )


def check_result(path: Path | None, *read: Path | None) -> None:
    """Refuse a file of `--json` that the command also reads, before anything is computed."""
    for each in read:
        if path and each and path.exists() and each.exists() and path.samefile(each):
            raise UserError(f"--json {path}: is read here, too, and would be lost: name another place")


def write_result(path: Path, value: Any) -> None:
    """Write `value` to the file of `--json`; whatever keeps it from being written is a `UserError` that names it."""
    if path.exists() and not path.is_file() and not path.is_dir():  # a rename would put a file in a device's place
        raise UserError(f"--json {path}: a device or pipe, not a file: name another place")
    try:
        write_json(path, value)
    except OSError as error:
        raise UserError(f"--json {path}: cannot be written ({error.strerror}): name another place") from None


def whole(least: int = 1) -> Callable[[str], int]:
    """A whole number of at least `least`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, {least} or above")
        return value

    return parse


def positive(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number above 0")
    return value


def wholes(text: str) -> tuple[int, ...]:
    """Whole numbers above 0, separated by blanks: '1 128 65536'."""
    values = tuple(whole()(part) for part in text.split())
    if not values:
        raise argparse.ArgumentTypeError("give at least one number")
    return values
