"""`geomix compare`: difference in WER between two hypothesis files, with its interval over speakers."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomix.commands.arguments import add_reference, check_result, whole, write_result
from geomix.errors import UserError
from geomix.report.text import interval_text
from geomix.speech.comparison import compare_systems
from geomix.speech.normalisers import NORMALISERS
from geomix.speech.scoring import Score, by_speaker, read_reference, read_text, score_texts
from geomix.statistics import bootstrap_rate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_reference(parser)
    parser.add_argument("a", type=Path, metavar="HYP_A", help="Kaldi text file of the hypotheses of system A")
    parser.add_argument("b", type=Path, metavar="HYP_B", help="and of system B")
    parser.add_argument(
        "--utt2spk", type=Path, metavar="FILE", help="Kaldi utt2spk file; a manifest knows its speakers"
    )
    parser.add_argument("--resamples", type=whole(), default=10_000, metavar="N", help="default: 10,000")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the bootstrap; default: 0")
    parser.add_argument("--normaliser", default="none", choices=NORMALISERS, help="default: none")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the comparison there as well")


def run(arguments: argparse.Namespace) -> None:
    """Score both, compare and print."""
    check_result(arguments.json, arguments.reference, arguments.a, arguments.b, arguments.utt2spk)
    reference, speakers = read_reference(arguments.reference, arguments.utt2spk)
    if speakers is None:
        raise UserError(
            f"{arguments.reference}: does not name speakers, over which the interval is: give --utt2spk FILE"
        )
    scores = {
        path: score_texts(
            reference,
            read_text(path),
            speakers,
            normaliser=arguments.normaliser,
            reference_name=str(arguments.reference),
            hypothesis_name=str(path),
        )
        for path in (arguments.a, arguments.b)
    }
    a, b = scores[arguments.a], scores[arguments.b]
    options = {"resamples": arguments.resamples, "seed": arguments.seed}
    entry = compare_systems({0: a}, {0: b}, ("A", "B"), **options)
    if arguments.json:
        write_result(arguments.json, {"a": str(arguments.a), "b": str(arguments.b), **entry})
    print(describe(a, b, entry, names=(str(arguments.a), str(arguments.b)), **options))


def describe(a: Score, b: Score, entry: dict, *, names: tuple[str, str], resamples: int, seed: int) -> str:
    """Both systems, their difference and the verdict, as aligned text."""
    width = max(map(len, names))
    lines = [f"{len(a.utterances):,} utterances of {a.speakers} speakers, {a.words.reference:,} reference words", ""]
    for letter, score, name in (("A", a, names[0]), ("B", b, names[1])):
        errors, words = by_speaker([score], [name])
        interval = bootstrap_rate(errors, words, resamples=resamples, seed=seed)
        lines.append(
            f"{letter}  {name:<{width}}  WER {interval.estimate:6.2f} %  {interval_text(interval.low, interval.high, '')}"
        )
    verdict = {"a better": "A is better", "b better": "B is better", "tie": "a tie"}[entry["verdict"]]
    test = entry["mapsswe"][0]
    p = "-" if test["p"] is None else f"{test['p']:.4g}"
    improvement = "-" if entry["p_improvement"] is None else f"{entry['p_improvement']:.3f}"
    lines += [
        "",
        f"A - B = {entry['difference']:+.2f} points: {verdict}",
        f"  95 % interval {interval_text(entry['low'], entry['high'])}  percentile, {resamples:,} resamples of speakers",
        f"  95 % interval {interval_text(entry['t_low'], entry['t_high'])}  t over speakers",
        f"  probability that A is better {improvement}",
        f"  MAPSSWE p = {p} over {test['segments']} segments",
    ]
    lines += [f"warning: {warning}" for warning in entry["warnings"]]
    return "\n".join(lines)
