"""`geomix arms`: size of each arm of a study."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.mixers.own.source import HASH
from geomix.mixers.registry import MIXERS
from geomix.settings import load
from geomix.settings.base import without_before
from geomix.studies.plan import output_units


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--configfile",
        nargs="+",
        type=Path,
        default=[],
        help="overlays on config.yaml, later ones winning, as Snakemake takes them",
    )
    parser.add_argument(
        "--vocab",
        type=int,
        help="output units, instead of the configuration's tokenizer.size (null there: as many as the text has)",
    )


def shown(mixer: Mapping[str, Any]) -> Mapping[str, Any]:
    """A mixer's arguments without those that were added later and stand at the value of before."""
    return without_before(mixer, MIXERS[mixer["mixer"]].arguments) if mixer["mixer"] in MIXERS else mixer


def run(arguments: argparse.Namespace) -> None:
    """Print one line an arm: exact parameters, deviation from attention, training FLOPs per audio-second, mixer."""
    from geomix.models.arms import TOLERANCE, arm_sizes, check_matched

    config = load(*arguments.configfile)
    vocabulary = arguments.vocab or output_units(config)
    sizes = arm_sizes(config, vocabulary)
    width = max(len(size.arm) for size in sizes)
    print(f"{'arm':{width}}  {'parameters':>11}  {'deviation':>9}  {'GFLOP/audio-s':>13}  mixer")
    for size in sizes:
        mixer = " ".join(str(v) if k == "mixer" else f"{k}={v}" for k, v in shown(size.mixer).items() if k != HASH)
        notes = "  (unmatched)" if size.unmatched or abs(size.deviation) > TOLERANCE else ""
        notes += "  (counted from its linear maps)" if size.from_linear_maps else ""
        print(
            f"{size.arm:{width}}  {size.parameters:>11,}  {100 * size.deviation:>+8.2f}%  "
            f"{size.flops_per_audio_second / 1e9:>13.2f}  {mixer}{notes}"
        )
    run_arms = {name: config["arms"][name] for name in {"attention", *config["study"]["arms"]}}
    check_matched({**config, "arms": run_arms}, vocabulary)
