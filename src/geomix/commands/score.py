"""`geomix score`: WER and CER of a Kaldi text file of hypotheses against a reference."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.commands.arguments import add_reference, check_result, write_result
from geomix.speech.alignments import align_score, write_details
from geomix.speech.normalisers import NORMALISERS
from geomix.speech.scoring import Score, read_reference, read_text, score_texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_reference(parser)
    parser.add_argument("hypotheses", type=Path, metavar="HYP", help="Kaldi text file of the hypotheses")
    parser.add_argument("--utt2spk", type=Path, metavar="FILE", help="Kaldi utt2spk file; rates by speaker are added")
    parser.add_argument("--normaliser", default="none", choices=NORMALISERS, help="default: none")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the totals there as well")
    parser.add_argument(
        "--details",
        type=Path,
        metavar="FOLDER",
        help="write word alignments, confusions and rates by word and by speaker there",
    )


def run(arguments: argparse.Namespace) -> None:
    """Score and print."""
    check_result(arguments.json, arguments.reference, arguments.hypotheses, arguments.utt2spk)
    reference, speakers = read_reference(arguments.reference, arguments.utt2spk)
    hypotheses = read_text(arguments.hypotheses)
    score = score_texts(
        reference,
        hypotheses,
        speakers,
        set=arguments.reference.name,
        normaliser=arguments.normaliser,
        reference_name=str(arguments.reference),
        hypothesis_name=str(arguments.hypotheses),
    )
    if arguments.json:
        write_result(arguments.json, {**score.to_dict(), "normaliser": arguments.normaliser})
    print(describe(score))
    if arguments.details:
        name = arguments.hypotheses
        aligned = align_score(score, reference, hypotheses, normaliser=arguments.normaliser, name=name)
        paths = write_details(arguments.details, aligned)
        print(f"\ndetails: {', '.join(map(str, paths))}")


def describe(score: Score) -> str:
    """Totals as aligned text; rates by speaker where speakers are known."""
    of = f" of {score.speakers} speakers" if score.speakers else ""
    lines = [
        f"{len(score.utterances):,} utterances{of}; corpus rates (all errors over all reference units)",
        f"      {'rate %':>8} {'errors':>9} {'reference':>10} {'sub':>8} {'ins':>8} {'del':>8}",
    ]
    for name, c in (("WER", score.words), ("CER", score.characters)):
        lines.append(
            f"{name}   {c.rate:>8.2f} {c.errors:>9,} {c.reference:>10,} "
            f"{c.substitutions:>8,} {c.insertions:>8,} {c.deletions:>8,}"
        )
    if score.speakers:
        totals = {}
        for u in score.utterances:
            totals[u.speaker] = totals[u.speaker] + u.words if u.speaker in totals else u.words
        width = max(7, *map(len, totals))
        lines += ["", f"{'speaker':<{width}} {'WER %':>8} {'errors':>9} {'words':>10}"]
        for speaker, c in sorted(totals.items(), key=lambda item: (-item[1].rate, item[0])):
            lines.append(f"{speaker:<{width}} {c.rate:>8.2f} {c.errors:>9,} {c.reference:>10,}")
    return "\n".join(lines)
