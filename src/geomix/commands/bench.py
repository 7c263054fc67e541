"""`geomix bench`: what the hot code costs, beside its floor and beside what a user would pick instead."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import types
import typing
from pathlib import Path
from typing import Any

from geomix.benchmarks import BENCHMARKS
from geomix.commands.arguments import positive, whole, wholes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The benchmark's name; its own options follow it (`geomix bench NAME --help`)."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "\n".join(f"  {name:12}{benchmark.summary}" for name, benchmark in BENCHMARKS.items())
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of that benchmark")


def run(arguments: argparse.Namespace) -> None:
    """Run one benchmark."""
    module = importlib.import_module(BENCHMARKS[arguments.name].module)
    module.run(read_options(module.Options, arguments.options, arguments.name, module.__doc__))


def read_options(options: type, words: list[str], name: str, description: str | None = None) -> Any:
    """`options`, a dataclass of `benchmarks.options`, from the words of a command line."""
    parser = argparse.ArgumentParser(prog=f"geomix bench {name}", description=description)
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        about = dict(field.metadata)
        default = (
            " ".join(map(str, field.default))
            if isinstance(field.default, tuple) and not about["parse"]
            else field.default
        )
        shown = f" (default: {default})" if default not in (None, "") and not isinstance(default, bool | tuple) else ""
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            default=field.default,
            help=about["help"] + shown,
            **_accepted(hints[field.name], about),
        )
    return options(**vars(parser.parse_args(words)))


def _accepted(hint: Any, about: dict[str, Any]) -> dict[str, Any]:
    """What argparse is told of a type."""
    if isinstance(hint, types.UnionType):  # X | None
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(hint) is tuple:
        parse = about["parse"] or (wholes if typing.get_args(hint)[0] is int else str.split)
        return {"action": _Several, "nargs": "+", "type": parse}
    return {"type": {int: whole(), float: positive, Path: Path, str: str}[hint]} | (
        {"choices": about["choices"]} if about["choices"] else {}
    )


class _Several(argparse.Action):
    """Values of several words, each of which may hold several, as one tuple."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, tuple(itertools.chain.from_iterable(values)))
