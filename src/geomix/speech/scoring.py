"""Word and character error rates of a set of hypotheses, and the files they are kept in.

Rates are corpus rates: all errors over all reference words (characters) of the set, never an average over
utterances. No normaliser is applied unless one is named: LibriSpeech's references are scored as they stand.
Characters are those of the words joined by single spaces, and the spaces count, as in ESPnet's tables (288,456
for dev-clean). Alignments have unit costs, so totals equal those of jiwer and kaldialign; among equally cheap ones
that of NIST's sclite is taken, so the split into substitutions, insertions and deletions is sclite's as well, save
where sclite's weights (4, 3, 3) tell apart what unit costs do not: seldom below 30 % errors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# The compiled half of kaldialign. Its Python half sorts the symbols of every pair anew and takes twice the time.
import _kaldialign
import numpy as np

from geomix.errors import UserError
from geomix.files import write_json, write_text
from geomix.speech import normalisers
from geomix.speech.manifest import read_manifest

TSV_HEADER = (
    "id", "speaker",
    "words", "word_errors", "word_sub", "word_ins", "word_del",
    "chars", "char_errors", "char_sub", "char_ins", "char_del",
    "alignment",
)  # fmt: skip


@dataclass(frozen=True)
class Counts:
    """Errors of hypotheses against `reference` words (or characters)."""

    reference: int = 0
    substitutions: int = 0
    insertions: int = 0
    deletions: int = 0

    @property
    def errors(self) -> int:
        """Substitutions + insertions + deletions."""
        return self.substitutions + self.insertions + self.deletions

    @property
    def rate(self) -> float:
        """Errors per 100 reference units (%); infinite when all references are empty and something was inserted."""
        if self.reference:
            return 100 * self.errors / self.reference
        return float("inf") if self.errors else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.reference + other.reference,
            self.substitutions + other.substitutions,
            self.insertions + other.insertions,
            self.deletions + other.deletions,
        )

    def to_dict(self) -> dict:
        """The form of score/<set>.json; an infinite rate becomes null."""
        return {
            "reference": self.reference,
            "errors": self.errors,
            "substitutions": self.substitutions,
            "insertions": self.insertions,
            "deletions": self.deletions,
            "rate": None if self.rate == float("inf") else self.rate,
        }


@dataclass(frozen=True)
class UtteranceScore:
    """One utterance: `alignment` has a letter a step, `=` correct, `S`, `I`, `D`, in the order of the words."""

    id: str
    speaker: str
    words: Counts
    characters: Counts
    alignment: str


@dataclass(frozen=True)
class Score:
    """A scored set: its utterances in the order of their ids, and the totals."""

    utterances: tuple[UtteranceScore, ...]
    set: str = ""
    words: Counts = field(init=False)
    characters: Counts = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "words", sum((u.words for u in self.utterances), Counts()))
        object.__setattr__(self, "characters", sum((u.characters for u in self.utterances), Counts()))

    @property
    def speakers(self) -> int | None:
        """Number of speakers; None when they are not known."""
        names = {u.speaker for u in self.utterances}
        return None if "" in names else len(names)

    def to_dict(self) -> dict:
        """The form of score/<set>.json."""
        return {
            "set": self.set,
            "words": self.words.to_dict(),
            "characters": self.characters.to_dict(),
            "utterances": len(self.utterances),
            "speakers": self.speakers,
        }


def score_texts(
    references: Mapping[str, str],
    hypotheses: Mapping[str, str],
    speakers: Mapping[str, str] | None = None,
    *,
    set: str = "",
    normaliser: str = "none",
    reference_name: str = "the reference",
    hypothesis_name: str = "the hypotheses",
) -> Score:
    """Score `hypotheses` against `references`, both `{utterance id: text}`, joined by id.

    `speakers` maps utterance ids to speakers. A reference without a hypothesis, a hypothesis without a reference and
    an utterance without a speaker are errors (`UserError` with the first ids and the number): an utterance that was
    never decoded must not make a rate look better. An empty reference counts its hypothesis's words as insertions.
    `normaliser` is a name in `normalisers.NORMALISERS`. `reference_name` and `hypothesis_name` are what the sentences of errors call the two (file names, say).
    """
    normalise = normalisers.named(normaliser)
    if not references:
        raise UserError(f"{reference_name} holds no utterance: give a file with one `utterance-id words` a line")
    _refuse(
        references.keys() - hypotheses.keys(),
        f"{hypothesis_name}: {{}} of {len(references)} utterances of {reference_name} have no hypothesis ({{}}): "
        "decode them too (an empty hypothesis is a line with the id alone)",
    )
    _refuse(
        hypotheses.keys() - references.keys(),
        f"{hypothesis_name}: {{}} of {len(hypotheses)} hypotheses are not in {reference_name} ({{}}): "
        "score them against the reference they belong to, or remove them",
    )
    if speakers is not None:
        _refuse(
            references.keys() - speakers.keys(),
            f"{reference_name}: {{}} of {len(references)} utterances have no speaker ({{}}): add them to utt2spk",
        )

    vocabulary: dict[str, int] = {}

    def numbers(words: list[str]) -> list[int]:
        # from 1 on: 0 stands for a gap in the alignment; reversed: see `align`
        return [vocabulary.setdefault(word, len(vocabulary) + 1) for word in reversed(words)]

    rows = []
    for id in sorted(references):
        reference = normalise(references[id]).split()
        hypothesis = normalise(hypotheses[id]).split()
        letters, other = " ".join(reference), " ".join(hypothesis)
        if letters == other:
            alignment, characters = "=" * len(reference), Counts(len(letters))
        else:
            alignment = _align_reversed(numbers(reference), numbers(hypothesis))
            edits = _kaldialign.edit_distance([ord(c) for c in reversed(letters)], [ord(c) for c in reversed(other)])
            characters = Counts(len(letters), edits["sub"], edits["ins"], edits["del"])
        words = Counts(len(reference), alignment.count("S"), alignment.count("I"), alignment.count("D"))
        rows.append(UtteranceScore(id, speakers[id] if speakers else "", words, characters, alignment))
    return Score(tuple(rows), set)


def align(reference: list[str], hypothesis: list[str]) -> str:
    """Cheapest alignment (unit costs) of two lists of words: `=`, `S`, `I` or `D` a step.

    Of equally cheap alignments, sclite's is taken: kaldialign prefers an early gap, sclite a late one, so both lists
    are aligned from their ends.
    """
    vocabulary: dict[str, int] = {}
    number = lambda word: vocabulary.setdefault(word, len(vocabulary) + 1)
    return _align_reversed([number(w) for w in reversed(reference)], [number(w) for w in reversed(hypothesis)])


def _align_reversed(reference: list[int], hypothesis: list[int]) -> str:
    steps = [
        "I" if r == 0 else "D" if h == 0 else "=" if r == h else "S"
        for r, h in _kaldialign.align(reference, hypothesis, 0)
    ]
    return "".join(reversed(steps))


def _refuse(ids: Iterable[str], sentence: str) -> None:
    """Raise `sentence`, filled with the number of `ids` and the first of them, if there are any."""
    ids = sorted(ids)
    if ids:
        raise UserError(sentence.format(len(ids), "first: " + ", ".join(ids[:5]) if len(ids) > 5 else ", ".join(ids)))


def read_text(path: str | os.PathLike) -> dict[str, str]:
    """Read a Kaldi `text` file, `utterance-id WORD WORD ...` a line: `{id: text}`; an id alone has an empty text.

    Blank lines are skipped; an id that comes twice, or a file that is absent or not UTF-8, is a `UserError`.
    """
    return _read_table(path, "utterance-id WORD WORD")


def read_utt2spk(path: str | os.PathLike) -> dict[str, str]:
    """Read a Kaldi `utt2spk` file, `utterance-id speaker` a line: `{id: speaker}`."""
    table = _read_table(path, "utterance-id speaker")
    for id, speaker in table.items():
        if len(speaker.split()) != 1:
            raise UserError(f"{path}: {id} has {speaker!r} for a speaker: write one speaker, without spaces, a line")
    return table


def read_reference(
    path: str | os.PathLike, utt2spk: str | os.PathLike | None
) -> tuple[dict[str, str], dict[str, str] | None]:
    """Texts and speakers by utterance id, from a Kaldi `text` file and a `utt2spk` file, or from a manifest (.tsv), which knows both.

    Speakers are None where neither file names them.
    """
    if Path(path).suffix == ".tsv":
        utterances = read_manifest(path)
        texts, speakers = {u.id: u.text for u in utterances}, {u.id: u.speaker for u in utterances}
    else:
        texts, speakers = read_text(path), None
    return texts, read_utt2spk(utt2spk) if utt2spk else speakers


def _read_table(path: str | os.PathLike, form: str) -> dict[str, str]:
    table: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8-sig") as file:  # some editors put a byte-order mark before the first id
            for number, line in enumerate(file, 1):
                key, _, value = line.strip().replace("\t", " ", 1).partition(" ")
                if key in table:
                    raise UserError(f"{path}: line {number} has the id {key} a second time: keep one line an id")
                if key:
                    table[key] = value.strip()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file: give a Kaldi file with one `{form}` a line") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a folder: give a Kaldi file with one `{form}` a line") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}): convert it") from None
    return table


def write_score(
    score: Score, json_path: str | os.PathLike, tsv_path: str | os.PathLike, *, normaliser: str | None = None
) -> None:
    """Write the totals as JSON, with the name of the normaliser if one is given, and the utterances as TSV (`TSV_HEADER`)."""
    lines = ["\t".join(TSV_HEADER)]
    for u in score.utterances:
        row = [u.id, u.speaker]
        for c in (u.words, u.characters):
            row += [c.reference, c.errors, c.substitutions, c.insertions, c.deletions]
        lines.append("\t".join(map(str, [*row, u.alignment])))
    write_text(tsv_path, "\n".join(lines) + "\n")
    write_json(json_path, score.to_dict() | ({} if normaliser is None else {"normaliser": normaliser}))


def read_score(tsv_path: str | os.PathLike) -> Score:
    """Read score/<set>.tsv back; the set's name is the file's. Bad lines are a `UserError`."""
    path = Path(tsv_path)
    try:
        header, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file: score this set first") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text: score this set again") from None
    if tuple(header.split("\t")) != TSV_HEADER:
        raise UserError(f"{path}: its header is not `{' '.join(TSV_HEADER)}`: score this set again")
    rows = []
    for number, line in enumerate(lines, 2):
        try:
            id, speaker, *numbers, alignment = line.split("\t")
            words, word_errors, ws, wi, wd, characters, character_errors, cs, ci, cd = map(int, numbers)
            row = UtteranceScore(id, speaker, Counts(words, ws, wi, wd), Counts(characters, cs, ci, cd), alignment)
            if (row.words.errors, row.characters.errors) != (word_errors, character_errors):
                raise ValueError("errors are not the sum of their kinds")
        except ValueError as error:
            raise UserError(f"{path}: line {number} is damaged ({error}): score this set again") from None
        rows.append(row)
    return Score(tuple(rows), path.stem)


def by_speaker(scores: list[Score], names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Word errors (scores, speakers) and reference words (speakers,) of several scores of one set.

    `names` are what errors call the scores. All must have the same utterances, speakers and reference words, and
    know their speakers: `UserError` otherwise.
    """
    first = [(u.id, u.speaker, u.words.reference) for u in scores[0].utterances]
    speakers = sorted({speaker for _, speaker, _ in first})
    if "" in speakers:
        raise UserError(f"{names[0]}: its speakers are not known: score it again with utt2spk")
    column = {speaker: i for i, speaker in enumerate(speakers)}
    errors, words = np.zeros((len(scores), len(speakers))), np.zeros(len(speakers))
    for _, speaker, count in first:
        words[column[speaker]] += count
    for row, (score, name) in enumerate(zip(scores, names, strict=True)):
        if [(u.id, u.speaker, u.words.reference) for u in score.utterances] != first:
            raise UserError(f"{name} and {names[0]} were scored against different references: score both again")
        for u in score.utterances:
            errors[row, column[u.speaker]] += u.words.errors
    return errors, words
