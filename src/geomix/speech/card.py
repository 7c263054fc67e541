"""A model card (https://arxiv.org/abs/1810.03993) from what a training left behind: its record and its scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from geomix.speech.scoring import Score, by_speaker, read_score
from geomix.statistics import bootstrap_rate
from geomix.training.record import RunRecord

LICENCES = {
    "an4": "CMU's Census database (AN4), recorded by Carnegie Mellon University in 1991: its archive says under which terms",
    "demo": "synthesised by geomix with espeak-ng and a small grammar: no recording of a person is in it",
    "smoke": "tones made by geomix: no speech is in it",
    "librispeech": "LibriSpeech (Panayotov et al. 2015), CC BY 4.0",
}
"""Corpus -> where its recordings come from and under which terms."""


def model_card(folder: Path) -> str:
    """Markdown of a trained model's folder, which holds record.json and score/<set>.tsv; a `UserError` for a damaged one."""
    record = RunRecord.read(folder / "record.json")
    subject, origin, course = record.subject, record.origin, record.course
    hours = subject.data.get("seconds", 0) / 3600
    lines = [
        f"# {subject.corpus}: {subject.arm}, seed {subject.seed}",
        "",
        f"A Conformer-CTC speech recogniser of {subject.parameters:,} parameters, trained by geomix (run {subject.run}, settings "
        f"{subject.settings_hash}, commit {(origin.commit or 'unknown')[:12]}) on {hours:.2f} hours of the corpus "
        f"{subject.corpus}, copies at other speeds included: {subject.data.get('utterances', 0):,} utterances, "
        f"{course.epochs} epochs, {course.wall_seconds / 3600:.2f} hours on {origin.device}.",
        "",
        f"Mixer: {', '.join(f'{key} {value}' for key, value in subject.mixer.items())}.",
        *_start(record),
        "",
        "## Word error rate",
        "",
        *(list(_rates(folder)) or ["Not measured."]),
        "",
        "Intervals are percentile intervals of the bootstrap over speakers; they say nothing of other trainings.",
        "",
        "## Data",
        "",
        f"{LICENCES.get(subject.corpus, f'Corpus {subject.corpus}: its terms are its owner’s, and are not known to geomix')}.",
        "",
        "## What it is not for",
        "",
        f"It has heard nothing but the speakers, the words and the recording conditions of {subject.corpus}. It is a point of "
        "measurement in a comparison of mixers, not a product: it is not fit to transcribe other speech, and not for "
        "any decision about a person. Its word confidences are not calibrated.",
    ]
    return "\n".join(lines) + "\n"


def _start(record: RunRecord) -> list[str]:
    start = getattr(record.domain, "started_from", None)
    if not start:
        return []
    return [
        "",
        f"Training started from the weights {start['weights'][:12]} of {start['folder']}: {start['kept']} units of the "
        f"tokenizer were taken over, {len(start['new'])} were new.",
    ]


def _rates(folder: Path) -> Iterator[str]:
    paths = sorted((folder / "score").glob("*.tsv"))
    if paths:
        yield from ("| set | WER % | 95 % interval | words | speakers |", "| --- | ---: | ---: | ---: | ---: |")
    for path in paths:
        score = read_score(path)
        yield f"| {path.stem} | {score.words.rate:.2f} | {_interval(score)} | {score.words.reference:,} | {score.speakers or '-'} |"


def _interval(score: Score) -> str:
    if not score.speakers or score.speakers < 2:
        return "-"
    errors, words = by_speaker([score], [score.set])
    found = bootstrap_rate(errors, words)
    return f"[{found.low:.2f}, {found.high:.2f}]"
