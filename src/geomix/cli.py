"""`geomix`: the single steps that a person runs by hand; the studies themselves are run by Snakemake."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys

from geomix.errors import exit_with_sentence, sentence_of

# command -> what it does; each is a module of geomix.commands with add_arguments(parser) and run(arguments)
COMMANDS = {
    "init": "look at a folder of recordings and write a configuration that runs on it",
    "check": "all that is wrong with a corpus, by kind, and what it holds, without preparing it",
    "an4": "CMU AN4 in the form used here, from its public archive of sphere files",
    "arms": "exact parameter count, FLOPs per audio-second and mixer of each arm of a config",
    "score": "WER and CER of a Kaldi text file of hypotheses against a reference",
    "compare": "difference in WER between two hypothesis files, with its interval over speakers",
    "ablate": "change in WER when a part of a trained model is taken out: mixers, offsets, sides, outer taps",
    "tables": "rebuild the tables and figures of a results folder from its scores and records",
    "page": "make the results page of a run: see, hear and compare what each arm does, in a browser",
    "publish": "check a finished run and copy it, less its weights, to results/published",
    "claims": "what has been claimed and how it is known: measured, derived or not run",
    "transcribe": "decode audio files with a trained model",
    "status": "which runs of a study are done, running (with the time left) or failed",
    "forget": "a run gives up its trainings; those that no run claims then are removed",
    "plan": "what a study will cost before it starts: jobs, hours, disk, longest chain",
    "granite": "Granite Speech: transcribe, the encoder's CTC head, convert checkpoints",
    "settings": "the configuration with every default filled in; --write makes config/README.md and config/schema.json",
    "bench": "what the hot code costs: product, mixer, step, speed, espnet, granite, statistics",
}


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `geomix` command: what goes wrong while reading or writing ends in one sentence, too."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a letter gets its escape
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            _run(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough: `geomix ... | head`
        _write_no_more()
        raise SystemExit(141) from None
    except KeyboardInterrupt:
        print("geomix: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except OSError as error:  # what was still to be written when the command had ended
        sentence = sentence_of(error)
        if error.errno == errno.EIO and error.filename is None:
            sentence = f"the output: cannot be written ({error.strerror}): name another place"
        if sentence is None:
            raise
        _write_no_more()
        print(f"geomix: {sentence}", file=sys.stderr)
        raise SystemExit(1) from None


def _run(argv: list[str] | None) -> None:
    parser = argparse.ArgumentParser(prog="geomix", description=__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    argv_command = next((a for a in (argv if argv is not None else sys.argv[1:]) if not a.startswith("-")), None)
    for name, summary in COMMANDS.items():
        sub = subparsers.add_parser(name, help=summary, description=summary)
        if name == argv_command:  # only the command that runs is imported: `geomix score` never loads torch
            module = importlib.import_module(f"geomix.commands.{name}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)
    with exit_with_sentence():
        arguments.run(arguments)


def _write_no_more() -> None:
    """Send what is still buffered for standard output nowhere, so that the interpreter does not fail again when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # no file behind it: a test's
        return


if __name__ == "__main__":
    main()
