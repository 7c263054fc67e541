"""`geomix arms`: size of each arm of a study."""

from __future__ import annotations

import argparse
from pathlib import Path


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


def run(arguments: argparse.Namespace) -> None:
    """Print one line an arm: exact parameters, deviation from attention, training FLOPs per audio-second, mixer."""
    from geomix.models.arms import check_matched

    config = read_config([Path("config.yaml"), *arguments.configfile])
    sizes = check_matched(config, arguments.vocab)
    width = max(len(size.arm) for size in sizes)
    print(f"{'arm':{width}}  {'parameters':>11}  {'deviation':>9}  {'GFLOP/audio-s':>13}  mixer")
    for size in sizes:
        mixer = " ".join(str(v) if k == "mixer" else f"{k}={v}" for k, v in size.mixer.items())
        print(
            f"{size.arm:{width}}  {size.parameters:>11,}  {100 * size.deviation:>+8.2f}%  "
            f"{size.flops_per_audio_second / 1e9:>13.2f}  {mixer}{'  (unmatched)' if size.unmatched else ''}"
        )


def read_config(paths: list[Path]) -> dict:
    """The configuration of a study: YAML files merged as Snakemake merges them (mappings deeply, all else replaced)."""
    import yaml

    from geomix.errors import UserError

    merged: dict = {}
    for path in paths:
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; run in the project's folder or give --configfile") from None
        except yaml.YAMLError as error:
            raise UserError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
        merged = _merge(merged, values)
    return merged


def _merge(base: dict, overlay: dict) -> dict:
    merged = dict(base)
    for key, value in overlay.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged
