"""Manifests: one line an utterance, the form in which every corpus reaches the rest of the workflow."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from geomix import files
from geomix.errors import UserError

SAMPLE_RATE = 16_000
"""Samples a second of all audio (Hz)."""

_COLUMNS = ("id", "speaker", "path", "samples", "speed", "text")
_PREFIX = re.compile(r"^sp\d+(\.\d+)?-")


@dataclass(frozen=True)
class Recording:
    """What a corpus reader finds: an utterance whose audio nobody has looked at yet."""

    id: str
    speaker: str
    path: str
    text: str


@dataclass(frozen=True)
class Utterance:
    """One line of a manifest.

    `samples` counts the samples after speed perturbation, at 16 kHz; `path` is the source recording, before it.
    A copy at another speed has the id `sp0.9-ID`.
    """

    id: str
    speaker: str
    path: str
    samples: int
    speed: float
    text: str

    @property
    def seconds(self) -> float:
        """Duration after speed perturbation, in seconds."""
        return self.samples / SAMPLE_RATE

    def at_speed(self, factor: float) -> Utterance:
        """The copy of this unperturbed utterance that plays `factor` times as fast (pitch and tempo, as `sox speed`)."""
        factor = float(factor)
        if self.speed != 1.0:
            raise ValueError(f"{self.id} is already a copy at speed {self.speed}")
        if factor == 1.0:
            return self
        return replace(self, id=f"sp{factor}-{self.id}", speed=factor, samples=perturbed_samples(self.samples, factor))


def speed_fraction(factor: float) -> Fraction:
    """`factor` as the small fraction it stands for: 0.9 -> 9/10; at most three decimals, between 1/4 and 4."""
    fraction = Fraction(factor).limit_denominator(1000)
    if not Fraction(1, 4) <= fraction <= 4 or abs(fraction - Fraction(factor)) > 1e-9:
        raise UserError(f"speed factor {factor}: give a number from 0.25 to 4 with at most three decimals, such as 0.9")
    return fraction


def perturbed_samples(samples: int, factor: float) -> int:
    """Length in samples after speed perturbation: ceil(samples / factor), as torchaudio's `speed` gives it."""
    fraction = speed_fraction(factor)
    return -(-samples * fraction.denominator // fraction.numerator)


def original_id(utterance_id: str) -> str:
    """The id without its speed prefix: `sp0.9-ID` -> `ID`."""
    return _PREFIX.sub("", utterance_id)


def read_lines(path: str | os.PathLike, cure: str) -> list[str]:
    """Lines of a UTF-8 text file, split at line feeds alone; `cure` ends the sentence when there is no such file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file: {cure}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None
    return text.removesuffix("\n").split("\n")


def write_manifest(path: str | os.PathLike, utterances: Iterable[Utterance]) -> None:
    """Write a manifest (TSV, sorted by id), whole or not at all.

    Audio that lies in the corpus folder (the parent of the manifest's folder) is named relative to the manifest, so
    that a corpus folder can be moved; other audio keeps its absolute path.
    """
    path = Path(path)
    folder = path.parent.resolve()
    lines = ["\t".join(_COLUMNS)]
    for utterance in sorted(utterances, key=lambda u: u.id):
        audio = Path(utterance.path).absolute()
        if audio.is_relative_to(folder.parent):
            audio = Path(os.path.relpath(audio, folder))
        fields = (utterance.id, utterance.speaker, str(audio), str(utterance.samples), repr(utterance.speed))
        fields = (*fields, utterance.text)
        if any("\t" in field or "\n" in field for field in fields):
            raise UserError(f"{path}: utterance {utterance.id} has a tab or a line end in a field: rename or clean it")
        lines.append("\t".join(fields))
    files.write_text(path, "\n".join(lines) + "\n")


def read_manifest(path: str | os.PathLike) -> list[Utterance]:
    """Read a manifest; audio paths come back absolute. Quotes mean nothing: a line is split at its tabs alone."""
    path = Path(path)
    lines = read_lines(path, "run the preparation of its corpus first")
    if lines[0].split("\t") != list(_COLUMNS):
        raise UserError(f"{path}: the header is {lines[0]!r}, not {' '.join(_COLUMNS)!r} with tabs: prepare it again")
    folder = path.parent.absolute()
    utterances = []
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        try:
            id_, speaker, audio, samples, speed, text = fields
            utterances.append(
                Utterance(id_, speaker, os.path.normpath(folder / audio), int(samples), float(speed), text)
            )
        except ValueError:
            raise UserError(f"{path}: line {number} is {line!r}, not six fields with tabs: prepare it again") from None
    return utterances


def summary(utterances: Iterable[Utterance], audio_hashes: Mapping[str, str]) -> dict:
    """Counts, seconds, speed histogram and hash of a split, as they stand in corpus.json and in run records.

    Parameters
    ----------
    audio_hashes : path of a source recording -> hash of its decoded samples

    Returns
    -------
    dict with utterances, speakers, words, characters (spaces counted), seconds, speed_histogram {"0.9": n} and hash.
    The hash covers ids, speakers, texts, speeds and the decoded audio, but no path: a moved corpus keeps it.
    """
    utterances = sorted(utterances, key=lambda u: u.id)
    digest = hashlib.sha256()
    for u in utterances:
        fields = (u.id, u.speaker, str(u.samples), repr(u.speed), u.text, audio_hashes[u.path])
        digest.update(("\t".join(fields) + "\n").encode())
    speeds = Counter(u.speed for u in utterances)
    return {
        "utterances": len(utterances),
        "speakers": len({u.speaker for u in utterances}),
        "words": sum(len(u.text.split()) for u in utterances),
        "characters": sum(len(u.text) for u in utterances),
        "seconds": sum(u.samples for u in utterances) / SAMPLE_RATE,
        "speed_histogram": {repr(speed): speeds[speed] for speed in sorted(speeds)},
        "hash": digest.hexdigest(),
    }
