"""`geomix`: the single steps that a person runs by hand; the studies themselves are run by Snakemake."""

from __future__ import annotations

import argparse
import importlib

from geomix.errors import exit_with_sentence

# command -> what it does; each is a module of geomix.commands with add_arguments(parser) and run(arguments)
COMMANDS = {
    "arms": "exact parameter count, FLOPs per audio-second and mixer of each arm of a config",
    "score": "WER and CER of a Kaldi text file of hypotheses against a reference",
    "compare": "difference in WER between two hypothesis files, with its interval over speakers",
    "tables": "rebuild the tables and figures of a results folder from its scores and records",
    "claims": "what has been claimed and how it is known: measured, derived or not run",
    "transcribe": "decode audio files with a trained model",
    "status": "which runs of a study are done, running (with the time left) or failed",
    "forget": "a run gives up its trainings; those that no run claims then are removed",
    "plan": "what a study will cost before it starts: jobs, hours, disk, longest chain",
    "granite": "Granite Speech: transcribe, the encoder's CTC head, convert checkpoints",
    "bench": "what the hot code costs: step, statistics, product, mixer, espnet",
}


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `geomix` command."""
    parser = argparse.ArgumentParser(prog="geomix", description=__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    argv_command = next((a for a in (argv if argv is not None else _argv()) if not a.startswith("-")), None)
    for name, summary in COMMANDS.items():
        sub = subparsers.add_parser(name, help=summary, description=summary)
        if name == argv_command:  # only the command that runs is imported: `geomix score` never loads torch
            module = importlib.import_module(f"geomix.commands.{name}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)
    with exit_with_sentence():
        arguments.run(arguments)


def _argv() -> list[str]:
    import sys

    return sys.argv[1:]


if __name__ == "__main__":
    main()
