"""`geomix claims`: the README's table of claims and how each is known, made from the records of the runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.errors import UserError
from geomix.files import write_text
from geomix.report.claims import Claim, claims_of_algebra, claims_of_study, claims_table

# what is asked, the run that answers it, and how its folder is read
RUNS = (
    ("speech, LibriSpeech-100, parity recipe", "results/published/librispeech100", claims_of_study),
    ("speech, LibriSpeech-100, strong recipe", "results/published/librispeech100_strong", claims_of_study),
    ("speech, AN4", "results/published/an4", claims_of_study),
    ("language, raw WikiText-2, the article's recipe", "results/published/librispeech100/language", claims_of_study),
    ("language, tokenised WikiText-2, reduced size", "results/published/wikitext2/language", claims_of_study),
    ("algebra", "results/published/algebra", claims_of_algebra),
)
BEGIN, END = "<!-- claims: made by `geomix claims --write README.md` -->\n", "<!-- end of claims -->\n"


def all_claims() -> list[Claim]:
    """The claims of every run, in the order of `RUNS`."""
    return [claim for question, folder, read in RUNS for claim in read(folder, question)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the marks of this file")


def run(arguments: argparse.Namespace) -> None:
    """Print the table, or write it into a file that has the marks."""
    table = claims_table(all_claims()) + "\n"
    if not arguments.write:
        print(table, end="")
        return
    try:
        text = arguments.write.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{arguments.write}: cannot be read ({error}): name a Markdown file that has the marks"
        ) from None
    if BEGIN not in text or END not in text:
        raise UserError(
            f"{arguments.write}: has no place for the claims: add the lines {BEGIN.strip()} and {END.strip()}"
        )
    head, rest = text.split(BEGIN, 1)
    write_text(arguments.write, head + BEGIN + table + END + rest.split(END, 1)[1])
