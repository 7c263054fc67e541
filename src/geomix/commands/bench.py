"""`geomix bench`: what the hot code costs, beside its floor and beside what a user would pick instead."""

from __future__ import annotations

import argparse
import importlib

BENCHMARKS = {
    "step": ("bench_training", "a training step of each arm: audio-s/s, MFU, peak memory"),
    "statistics": ("bench_statistics", "the scorer beside jiwer, the bootstrap"),
    "product": ("bench_product", "Clifford products in every form, beside the copy floor"),
    "espnet": ("bench_espnet", "a training step in both tracks, ours and ESPnet's, side by side"),
    "mixer": ("bench_mixer", "the pair mixer: paper form, anchored form, fused form"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The benchmark's name; its own options follow it (`geomix bench NAME --help`)."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "\n".join(f"  {name:12}{summary}" for name, (_, summary) in BENCHMARKS.items())
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of that benchmark")


def run(arguments: argparse.Namespace) -> None:
    """Run one benchmark."""
    module = importlib.import_module(f"geomix.commands.{BENCHMARKS[arguments.name][0]}")
    parser = argparse.ArgumentParser(prog=f"geomix bench {arguments.name}", description=module.__doc__)
    module.add_arguments(parser)
    module.run(parser.parse_args(arguments.options))
