"""`geomix ablate`: what a trained model loses when a part of it is taken out, without training it again."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from geomix.commands.arguments import whole
from geomix.errors import UserError
from geomix.files import write_text
from geomix.statistics.verdicts import CANNOT_TELL

if TYPE_CHECKING:
    from geomix.speech.manifest import Utterance
    from geomix.speech.scoring import Score

NAME = "ablation"


@dataclass(frozen=True)
class Row:
    """One ablation on one set: WER in %, its difference to the whole model in points with its intervals (None: a single speaker).

    low, high : percentile interval over speakers; t_low, t_high : t-interval; verdict : worse, better or tie, where either holds 0
    """

    kind: str
    ablation: str
    wer: float
    difference: float
    low: float | None
    high: float | None
    t_low: float | None
    t_high: float | None
    verdict: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="folder with model.safetensors, model.yaml, tokenizer.model and tokens.txt",
    )
    parser.add_argument(
        "set", type=Path, metavar="SET", help="a prepared set: its folder, which holds manifest/ and features/"
    )
    several = {"type": whole(), "nargs": "+", "metavar": "N"}
    parser.add_argument("--blocks", **several, help="blocks whose mixer is closed, from 1 (default: each)")
    parser.add_argument("--offsets", **several, help="offsets that are removed (default: each)")
    parser.add_argument("--kernels", **several, help="frames to which the convolution is cut (default: 15 and 7)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where ablation.* is written (default: MODEL)")
    parser.add_argument("--resamples", type=whole(), default=10_000, metavar="N", help="default: 10,000")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the bootstrap; default: 0")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: auto)")


def run(arguments: argparse.Namespace) -> None:
    """Decode the set with the model and with each ablation of it; print the table; write ablation.csv, .md, .png and .svg."""
    from geomix.models.ablation import FrontEndOnce, ablations
    from geomix.models.saved import load_model
    from geomix.speech.decoding import greedy_decode
    from geomix.speech.evaluation_set import prepared_set
    from geomix.speech.features import open_features
    from geomix.speech.scoring import score_texts
    from geomix.speech.tokenizer import Tokenizer
    from geomix.training.devices import choose_device

    device = choose_device(arguments.device)
    model = load_model(arguments.model).to(device)
    changes = ablations(model, arguments.blocks, arguments.offsets, arguments.kernels)
    found = prepared_set(arguments.set)
    utterances, store, tokenizer = found.utterances, open_features(found.features), Tokenizer.load(arguments.model)
    if missing := [u.id for u in utterances if u.id not in store]:
        raise UserError(f"{arguments.set}: no features of {missing[0]} ({len(missing)} in all): compute them again")
    references = {u.id: u.text for u in utterances}
    speakers = {u.id: u.speaker for u in utterances}

    front_end = FrontEndOnce()

    def score(changed) -> Score:
        texts = greedy_decode(front_end.on(changed), store, tokenizer, list(references), device=device)
        return score_texts(references, texts, speakers, reference_name=str(found.manifest))

    whole_model, rows = score(model), []
    print(f"whole model: WER {whole_model.words.rate:.2f} %", flush=True)
    for change in changes:
        rows.append(_row(change, score(change.of(model)), whole_model, arguments.resamples, arguments.seed))
        print(f"{change.name}: {rows[-1].difference:+.2f} points", flush=True)
    out = arguments.out or arguments.model
    write(out, rows, whole_model, describe(arguments, utterances, whole_model))
    print(f"wrote {out / NAME}.csv, .md, .png and .svg")


def _row(change, score: Score, whole_model: Score, resamples: int, seed: int) -> Row:
    from geomix.speech.comparison import compare_systems

    entry = compare_systems({0: score}, {0: whole_model}, resamples=resamples, seed=seed)
    intervals = [entry[key] for key in ("low", "high", "t_low", "t_high")]
    low, high = intervals[2:]
    verdict = CANNOT_TELL if low is None or low <= 0 <= high else "worse" if low > 0 else "better"
    return Row(change.kind, change.name, score.words.rate, entry["difference"], *intervals, verdict)


def describe(arguments: argparse.Namespace, utterances: Sequence[Utterance], whole_model: Score) -> str:
    """What was measured, and what it means."""
    from geomix.speech.comparison import FEW_SPEAKERS

    few = "" if whole_model.speakers >= FEW_SPEAKERS else f" Intervals from {whole_model.speakers} speakers are rough."
    return (
        f"Model {arguments.model}, set {arguments.set}: {len(utterances):,} utterances of {whole_model.speakers} speakers, "
        f"WER {whole_model.words.rate:.2f} % as trained. Differences are ablated minus whole, with 95 % intervals of the paired "
        f"bootstrap over speakers ({arguments.resamples:,} resamples); the t-interval decides.{few} One model: "
        "they say what this model uses, not what another training would learn without it."
    )


def write(out: Path, rows: Sequence[Row], whole_model: Score, about: str) -> None:
    """Write ablation.csv, ablation.md and the figure into `out`."""
    from geomix.report.text import interval_text, markdown_table

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([field.name for field in fields(Row)])
    table.writerows(astuple(row) for row in rows)
    write_text(out / f"{NAME}.csv", text.getvalue())
    header = ["ablation", "WER %", "difference", "95 % interval", "verdict"]
    cells = [
        [row.ablation, f"{row.wer:.2f}", f"{row.difference:+.2f}", interval_text(row.low, row.high), row.verdict]
        for row in rows
    ]
    lines = ["# Ablation", "", about, "", *markdown_table(header, cells), "", f"![differences in WER]({NAME}.svg)"]
    write_text(out / f"{NAME}.md", "\n".join(lines) + "\n")
    draw(out, rows, whole_model)


def draw(out: Path, rows: Sequence[Row], whole_model: Score) -> None:
    """Differences in WER with their intervals, an ablation a line: ablation.png and ablation.svg."""
    import matplotlib
    from matplotlib.figure import Figure

    from geomix.report.figures import COLOURS, STYLE, save_figure

    colours = dict(zip(dict.fromkeys(row.kind for row in rows), COLOURS, strict=False))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 0.9 + 0.26 * len(rows)), layout="constrained")
        axes = figure.subplots()
        for place, row in enumerate(rows):
            if row.low is not None and row.high is not None:
                axes.plot([row.low, row.high], [place, place], color=colours[row.kind], lw=2)
            axes.plot(row.difference, place, "o", color=colours[row.kind], ms=5)
        axes.axvline(0, color="#808080", lw=1)
        axes.set_yticks(range(len(rows)), [row.ablation for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel(f"change in WER, points (whole model: {whole_model.words.rate:.1f} %)")
        save_figure(figure, out, NAME)
