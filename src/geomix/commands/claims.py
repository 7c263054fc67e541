"""`geomix claims`: the README's table of claims and how each is known, made from the records of the runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.errors import UserError
from geomix.files import write_text
from geomix.report.claims import claims_table

# what is asked -> the run that answers it
RUNS = {
    "speech, LibriSpeech-100, parity recipe": "results/librispeech100",
    "speech, LibriSpeech-100, strong recipe": "results/librispeech100_strong",
    "speech, AN4": "results/an4",
}
BEGIN, END = "<!-- claims: made by `geomix claims --write README.md` -->\n", "<!-- end of claims -->\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the marks of this file")


def run(arguments: argparse.Namespace) -> None:
    """Print the table, or write it into a file that has the marks."""
    table = claims_table(RUNS) + "\n"
    if not arguments.write:
        print(table, end="")
        return
    text = arguments.write.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise UserError(
            f"{arguments.write}: has no place for the claims: add the lines {BEGIN.strip()} and {END.strip()}"
        )
    head, rest = text.split(BEGIN, 1)
    write_text(arguments.write, head + BEGIN + table + END + rest.split(END, 1)[1])
