"""`geomix init`: look at a folder of recordings and write a configuration that runs on it."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="a Kaldi folder, tables (*.tsv), LibriSpeech's form, or recordings with one file of transcripts",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the configuration to write (default: <name of FOLDER>.yaml)"
    )
    parser.add_argument("--allow-pipes", action="store_true", help="commands in a wav.scp may run")


def run(arguments: argparse.Namespace) -> None:
    """Write the configuration; print what was chosen and why, how long it takes, and the command."""
    import shlex
    import sys

    from geomix.errors import UserError
    from geomix.settings.config import read_layers
    from geomix.speech.corpora.forms import listen, look
    from geomix.speech.first_configuration import choose, save
    from geomix.speech.threads import processors
    from geomix.training.pace import this_machine
    from geomix.training.progress import duration

    base = read_layers("config.yaml")
    out = arguments.out or Path(f"{arguments.folder.resolve().stem}.yaml")
    if out.exists():
        raise UserError(f"{out}: is there already and is left as it is: remove it, or name another file with --out")
    form = look(arguments.folder, arguments.allow_pipes)
    for line in form.said:
        print(line)
    machine, cores = this_machine(), processors()
    first = choose(form, listen(form.recordings), machine, cores, out, base)
    save(first, out, f"geomix init {shlex.join(map(str, sys.argv[2:]))}", base)
    for section, reason in first.reasons.items():
        print(f"{section + ':':<13}{reason}" if reason else "", end="\n" if reason else "")
    low, high = (duration(3600 * hours) for hours in first.hours)
    print(f"{out}: written. All of it takes about {low} to {high} here ({machine.name}, {cores} cores).")
    print(f"  geomix check {out}                                  all that is wrong with the corpus")
    print(f"  snakemake --configfile {out} --cores {cores}        then read results/{first.name}/tables.md")
