"""`geomix arms`: size of each arm of a study."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.mixers.own.source import HASH
from geomix.mixers.registry import MIXERS
from geomix.settings import load
from geomix.settings.base import without_before
from geomix.settings.instances import Instance, studies_of
from geomix.settings.replacements import in_words
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
        "--study", help="another study of the configuration, such as language, components or architectures"
    )
    parser.add_argument(
        "--vocab",
        type=int,
        help="output units, instead of the configuration's tokenizer.size (null there: as many as the text has), or "
        "pieces of a language study's vocabulary",
    )


def shown(mixer: Mapping[str, Any]) -> Mapping[str, Any]:
    """A mixer's arguments without those that were added later and stand at the value of before."""
    return without_before(mixer, MIXERS[mixer["mixer"]].arguments) if mixer["mixer"] in MIXERS else mixer


def run(arguments: argparse.Namespace) -> None:
    """Print one line an arm: exact parameters, deviation from the baseline, training FLOPs, mixer and what else is replaced."""
    config = load(*arguments.configfile)
    study = _study(config, arguments.study)
    (_speech if study.kind == "speech" else _language)(study.config, arguments.vocab)


def _study(config: Mapping[str, Any], name: str | None) -> Instance:
    studies = studies_of(config)
    found = [study for study in studies.values() if (name or config["run"]) in (study.name, Path(study.name).name)]
    if not found:
        raise UserError(f"--study {name}: no such study of this configuration: choose one of {', '.join(studies)}")
    return found[0]


def _speech(config: Mapping[str, Any], vocabulary: int | None) -> None:
    from geomix.models.arms import TOLERANCE, arm_sizes, check_matched

    vocabulary = vocabulary or output_units(config)
    sizes = arm_sizes(config, vocabulary)
    width = max(len(size.arm) for size in sizes)
    print(f"{'arm':{width}}  {'parameters':>11}  {'deviation':>9}  {'GFLOP/audio-s':>13}  mixer")
    for size in sizes:
        notes = "  (unmatched)" if size.unmatched or abs(size.deviation) > TOLERANCE else ""
        notes += "  (counted from its linear maps)" if size.from_linear_maps else ""
        print(
            f"{size.arm:{width}}  {size.parameters:>11,}  {100 * size.deviation:>+8.2f}%  "
            f"{size.flops_per_audio_second / 1e9:>13.2f}  {_parts(size.mixer, size.replaced)}{notes}"
        )
    run_arms = {name: config["arms"][name] for name in {"attention", *config["study"]["arms"]}}
    check_matched({**config, "arms": run_arms}, vocabulary)


def _language(section: Mapping[str, Any], vocabulary: int | None) -> None:
    from geomix.models.arms import TOLERANCE, check_language_matched, language_sizes

    vocabulary = vocabulary or section["corpus"]["vocabulary"]
    if not isinstance(vocabulary, int):
        raise UserError("--vocab: not given, and the vocabulary is a file: say how many pieces it has (30522: BERT's)")
    sizes = language_sizes(section, vocabulary)
    width = max(len(size.arm) for size in sizes)
    print(f"{'arm':{width}}  {'parameters':>11}  {'deviation':>9}  {'MFLOP/token':>13}  mixer")
    for size in sizes:
        deviation = "-" if size.deviation is None else f"{100 * size.deviation:+.2f}%"
        notes = "  (unmatched)" if size.unmatched or abs(size.deviation or 0) > TOLERANCE else ""
        notes += "  (counted from its linear maps)" if size.from_linear_maps else ""
        print(
            f"{size.arm:{width}}  {size.parameters:>11,}  {deviation:>9}  {size.flops_per_token / 1e6:>13.2f}  "
            f"{_parts(size.mixer, size.replaced)}{notes}"
        )
    check_language_matched(section, vocabulary)


def _parts(mixer: Mapping[str, Any], replaced: Mapping[str, Any]) -> str:
    """What an arm puts into the model: the mixer with its arguments, and what it replaces beside it."""
    said = " ".join(str(v) if k == "mixer" else f"{k}={v}" for k, v in shown(mixer).items() if k != HASH)
    return ", ".join([said, *in_words(replaced)])
