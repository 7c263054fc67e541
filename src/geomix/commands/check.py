"""`geomix check`: all that is wrong with a corpus, by kind, and what it holds; nothing is prepared."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "configfile",
        nargs="+",
        metavar="CONFIG",
        help="overlays on config.yaml, as `snakemake --configfile` takes them",
    )


def run(arguments: argparse.Namespace) -> None:
    """Print faults, warnings and statistics of the corpus; status 1 if a fault would stop the study."""
    from geomix.errors import UserError
    from geomix.settings import corpus_at, load
    from geomix.settings.stages import GENERATED
    from geomix.speech.corpora.examination import examine
    from geomix.speech.corpora.faults import summary_lines

    config = load(*arguments.configfile)
    corpus = corpus_at(config)
    if corpus["kind"] in GENERATED:
        raise UserError(
            f"corpus {corpus['name']}: of kind {corpus['kind']}, which is made here: there is nothing to check"
        )
    if not corpus["path"]:
        raise UserError(f"corpus {corpus['name']}: has no path: name the folder of the recordings in corpus.path")
    found = examine(config, corpus)
    for line in (*statistics_lines(found, config), "", *summary_lines(found.faults.kinds(stops=False), "warning: ")):
        print(line)
    stopping = found.faults.kinds(stops=True)
    for line in summary_lines(stopping, "fault: "):
        print(line)
    if stopping:
        count = sum(map(len, stopping.values()))
        raise UserError(f"corpus {corpus['name']}: {count} faults of {len(stopping)} kinds stop the study: mend them")
    print(f"corpus {corpus['name']}: nothing stops the study")


def statistics_lines(found, config) -> list[str]:
    """The table of the splits, and what is to be said of the text."""
    from geomix.speech.corpora.examination import character_names

    lines = [
        f"{'split':<12} {'hours':>7} {'utterances':>10} {'speakers':>8} {'seconds: least, median, most':>29} "
        f"{'words':>7} {'unknown':>7} {'twice':>6} {'level':>9} {'clipped':>9}"
    ]
    for split, s in found.splits.items():
        lengths = " / ".join(f"{value:.1f}" for value in s.lengths)
        lines.append(
            f"{split:<12} {s.seconds / 3600:>7.2f} {s.utterances:>10,} {s.speakers:>8,} {lengths:>29} "
            f"{s.words:>7,} {len(s.unknown):>7,} {s.duplicates:>6,} {s.level:>6.1f} dB {100 * s.clipped:>7.3f} %"
        )
    rare = [character for character, count in found.characters.items() if count < 3]
    shown = [character for character, _ in found.characters.most_common() if character != " "]
    lines.append(f"characters of the training text, the frequent ones first: {character_names(shown[:100])}")
    if rare:
        lines.append(f"fewer than three times: {character_names(sorted(rare)[:100])}")
    if found.units:
        lines.append(f"tokenizer: {found.units} units of kind {config['tokenizer']['kind']}")
    return lines
