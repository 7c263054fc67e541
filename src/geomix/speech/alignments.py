"""Word alignments of scored hypotheses, and what they add up to: confusions, rates by word and by speaker.

The alignment is the score's own (`geomix.speech.scoring`), so that every count here equals it.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from geomix.errors import UserError
from geomix.files import write_text
from geomix.speech import normalisers
from geomix.speech.scoring import Counts, Score, UtteranceScore

GAP = None  # stands where the other side has no word
FILES = ("alignments.jsonl", "confusions.csv", "words.csv", "speakers.csv")


@dataclass(frozen=True)
class Step:
    """One step of an alignment: `=` correct, `S` substitution, `I` insertion (no reference word), `D` deletion (no hypothesis word)."""

    kind: str
    reference: str | None
    hypothesis: str | None


@dataclass(frozen=True)
class AlignedUtterance:
    """An utterance's words side by side."""

    id: str
    speaker: str
    words: Counts
    steps: tuple[Step, ...]

    def to_json(self) -> str:
        """A line of alignments.jsonl; a step is [kind, reference word or null, hypothesis word or null]."""
        value = {
            "id": self.id,
            "speaker": self.speaker,
            "words": self.words.reference,
            "substitutions": self.words.substitutions,
            "insertions": self.words.insertions,
            "deletions": self.words.deletions,
            "steps": [[step.kind, step.reference, step.hypothesis] for step in self.steps],
        }
        return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class WordRate:
    """A word of the references: how often it came, was substituted or deleted; and how often it was inserted."""

    word: str
    reference: int
    substituted: int
    deleted: int
    inserted: int

    @property
    def rate(self) -> float | None:
        """Substitutions and deletions of the word in % of its occurrences; None for a word that was only inserted."""
        return 100 * (self.substituted + self.deleted) / self.reference if self.reference else None


def align_score(
    score: Score,
    references: Mapping[str, str],
    hypotheses: Mapping[str, str],
    *,
    normaliser: str = "none",
    name: str | os.PathLike = "the score",
) -> list[AlignedUtterance]:
    """The scored utterances with their words, in the order of the score.

    `references` and `hypotheses` are the texts that were scored, `normaliser` what they were scored with. A text that does not fit the
    score's alignment is a `UserError`, which calls the score `name`.
    """
    normalise = normalisers.named(normaliser)
    return [
        AlignedUtterance(u.id, u.speaker, u.words, tuple(_steps(u, references, hypotheses, normalise, name)))
        for u in score.utterances
    ]


def _steps(utterance: UtteranceScore, references, hypotheses, normalise, name) -> Iterator[Step]:
    for texts, what in ((references, "reference"), (hypotheses, "hypothesis")):
        if utterance.id not in texts:
            raise UserError(f"{name}: {utterance.id} has no {what} among the texts: score this set again")
    said, heard = (normalise(texts[utterance.id]).split() for texts in (references, hypotheses))
    kinds = utterance.alignment
    if (len(kinds) - kinds.count("I"), len(kinds) - kinds.count("D")) != (len(said), len(heard)):
        raise UserError(
            f"{name}: the alignment of {utterance.id} is not that of its reference of {len(said)} words and its hypothesis "
            f"of {len(heard)}: score this set again"
        )
    reference, hypothesis = iter(said), iter(heard)
    for kind in kinds:
        step = Step(kind, GAP if kind == "I" else next(reference), GAP if kind == "D" else next(hypothesis))
        if (step.reference == step.hypothesis) != (kind == "="):
            raise UserError(
                f"{name}: the alignment of {utterance.id} has {kind!r} for {step.reference!r} and {step.hypothesis!r}: "
                "score this set again"
            )
        yield step


def confusions(utterances: Iterable[AlignedUtterance]) -> list[tuple[str, str | None, str | None, int]]:
    """(kind, reference word, hypothesis word, count) of every error: substitutions, insertions, deletions, the most frequent first."""
    found = Counter(step for u in utterances for step in u.steps if step.kind != "=")
    order = lambda item: ("SID".index(item[0].kind), -item[1], item[0].reference or "", item[0].hypothesis or "")
    return [(s.kind, s.reference, s.hypothesis, count) for s, count in sorted(found.items(), key=order)]


def word_rates(utterances: Iterable[AlignedUtterance]) -> list[WordRate]:
    """Every word of the references and hypotheses, those with the most errors first."""
    counts: dict[str, Counter] = {}
    for step in (step for u in utterances for step in u.steps):
        word = step.hypothesis if step.kind == "I" else step.reference
        counts.setdefault(word, Counter())[step.kind] += 1
    rates = [WordRate(w, c.total() - c["I"], c["S"], c["D"], c["I"]) for w, c in counts.items()]
    return sorted(rates, key=lambda r: (-(r.substituted + r.deleted + r.inserted), r.word))


def speaker_rates(utterances: Iterable[AlignedUtterance]) -> dict[str, tuple[int, Counts]]:
    """Speaker -> number of utterances and their counts, by name."""
    found: dict[str, tuple[int, Counts]] = {}
    for u in utterances:
        number, counts = found.get(u.speaker, (0, Counts()))
        found[u.speaker] = (number + 1, counts + u.words)
    return dict(sorted(found.items()))


def write_details(folder: str | os.PathLike, utterances: Sequence[AlignedUtterance]) -> list[Path]:
    """Write `FILES` into `folder`: each utterance's alignment as a JSON line, errors by kind and word, rates by word and by speaker.

    A word that is not there, of an insertion or a deletion, is an empty field; rates are in % with two decimals.
    """
    paths = [Path(folder) / name for name in FILES]
    words = [
        [r.word, r.reference, r.substituted, r.deleted, r.inserted, "" if r.rate is None else f"{r.rate:.2f}"]
        for r in word_rates(utterances)
    ]
    speakers = [
        [s, n, c.reference, c.errors, c.substitutions, c.insertions, c.deletions, f"{c.rate:.2f}"]
        for s, (n, c) in speaker_rates(utterances).items()
    ]
    texts = (
        "".join(u.to_json() + "\n" for u in utterances),
        _csv(("kind", "reference", "hypothesis", "count"), confusions(utterances)),
        _csv(("word", "reference", "substituted", "deleted", "inserted", "error_rate"), words),
        _csv(("speaker", "utterances", "words", "errors", "substitutions", "insertions", "deletions", "wer"), speakers),
    )
    for path, text in zip(paths, texts, strict=True):
        write_text(path, text)
    return paths


def _csv(header: Sequence[str], rows: Iterable[Sequence]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([header, *rows])
    return out.getvalue()
