"""`geomix compare`: difference in WER between two systems, each of one or several trainings, with its interval over speakers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from geomix.commands.arguments import add_reference, check_result, whole, write_result
from geomix.errors import UserError
from geomix.report.text import interval_text
from geomix.speech.comparison import compare_systems
from geomix.speech.normalisers import NORMALISERS
from geomix.speech.scoring import Score, by_speaker, read_reference, read_text, score_texts
from geomix.statistics import bootstrap_rate
from geomix.statistics.verdicts import CANNOT_TELL, TWO_MODELS, named


@dataclass(frozen=True)
class Side:
    """A system: what it is called, and the score of each of its trainings by what that is called."""

    name: str
    scores: dict[str, Score]

    @property
    def by_number(self) -> dict[int, Score]:
        """Scores as `compare_systems` takes them."""
        return dict(enumerate(self.scores.values()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_reference(parser)
    parser.add_argument(
        "hypotheses",
        type=Path,
        nargs="+",
        metavar="HYP",
        help="Kaldi text file of the hypotheses of system A, then that of system B; with --against, all are A's, a training each",
    )
    parser.add_argument(
        "--against", type=Path, nargs="+", metavar="HYP_B", help="hypotheses of system B, a file a training (seed)"
    )
    parser.add_argument(
        "--utt2spk", type=Path, metavar="FILE", help="Kaldi utt2spk file; a manifest knows its speakers"
    )
    add_bootstrap(parser)
    parser.add_argument("--normaliser", default="none", choices=NORMALISERS, help="default: none")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the comparison there as well")


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """How the bootstrap draws; the defaults are the study's."""
    parser.add_argument("--resamples", type=whole(), default=10_000, metavar="N", help="default: 10,000")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the bootstrap; default: 0")


def run(arguments: argparse.Namespace) -> None:
    """Score both, compare and print."""
    a, b = arguments.hypotheses, arguments.against
    if b is None:
        if len(a) != 2:
            raise UserError(f"{len(a)} files of hypotheses: give two, or those of system B behind --against")
        a, b = a[:1], a[1:]
    check_result(arguments.json, arguments.reference, *a, *b, arguments.utt2spk)
    reference, speakers = read_reference(arguments.reference, arguments.utt2spk)
    if speakers is None:
        raise UserError(
            f"{arguments.reference}: does not name speakers, over which the interval is: give --utt2spk FILE"
        )
    for side in (a, b):
        if twice := [path for path in side if side.count(path) > 1]:
            raise UserError(f"{twice[0]}: named twice for one system: give each training once")

    def score(path: Path) -> Score:
        return score_texts(
            reference,
            read_text(path),
            speakers,
            normaliser=arguments.normaliser,
            reference_name=str(arguments.reference),
            hypothesis_name=str(path),
        )

    sides = [Side(n, {str(path): score(path) for path in paths}) for n, paths in (("A", a), ("B", b))]
    options = {"resamples": arguments.resamples, "seed": arguments.seed}
    entry = compare_systems(sides[0].by_number, sides[1].by_number, ("A", "B"), **options)
    if arguments.json:
        names = ([str(path) for path in paths] for paths in (a, b))
        files = {key: found[0] if len(found) == 1 else found for key, found in zip("ab", names, strict=True)}
        write_result(arguments.json, {**files, **entry})
    print(describe(*sides, entry, **options))


def describe(a: Side, b: Side, entry: dict, *, resamples: int, seed: int) -> str:
    """Both systems, their difference and the verdict, as aligned text."""
    width = max(len(name) for side in (a, b) for name in side.scores)
    score = next(iter(a.scores.values()))
    lines = [
        f"{len(score.utterances):,} utterances of {score.speakers} speakers, {score.words.reference:,} reference words",
        "",
    ]
    for side in (a, b):
        lines += _rates(side, width, resamples, seed)
    # one training a side is two models, whatever their arms: what is said holds for them alone
    verdict = entry["verdict"]
    if verdict == TWO_MODELS and None not in (entry["t_low"], entry["t_high"]):
        better = a.name if entry["t_high"] < 0 else b.name if entry["t_low"] > 0 else None
        verdict = f"{f'{better} is better' if better else CANNOT_TELL} ({TWO_MODELS})"
    improvement = "-" if entry["p_improvement"] is None else f"{entry['p_improvement']:.3f}"
    lines += [
        "",
        f"{a.name} - {b.name} = {entry['difference']:+.2f} points: {named(verdict, a.name, b.name)}",
        f"  95 % interval {interval_text(entry['low'], entry['high'])}  percentile, {resamples:,} resamples of speakers",
        f"  95 % interval {interval_text(entry['t_low'], entry['t_high'])}  t over speakers"
        + (" and seeds" if max(len(a.scores), len(b.scores)) > 1 else ""),
        f"  probability that {a.name} is better {improvement}",
        *(_mapsswe(test, len(entry["mapsswe"]) > 1) for test in entry["mapsswe"]),
    ]
    lines += [f"warning: {warning}" for warning in entry["warnings"]]
    return "\n".join(lines)


def _rates(side: Side, width: int, resamples: int, seed: int) -> list[str]:
    """A line for each training of a system and, where there are several, one for their mean."""
    groups = {name: [score] for name, score in side.scores.items()}
    if len(groups) > 1:
        groups["mean"] = list(side.scores.values())
    lines = []
    for name, scores in groups.items():
        errors, words = by_speaker(scores, [name] * len(scores))
        interval = bootstrap_rate(errors, words, resamples=resamples, seed=seed)
        lines.append(
            f"{side.name}  {name:<{width}}  WER {interval.estimate:6.2f} %  {interval_text(interval.low, interval.high, '')}"
        )
    return lines


def _mapsswe(test: dict, several: bool) -> str:
    p = "-" if test["p"] is None else f"{test['p']:.4g}"
    pair = f"  (trainings {test['seed_a']} and {test['seed_b']})" if several else ""
    return f"  MAPSSWE p = {p} over {test['segments']} segments{pair}"
