"""Manifests: one line an utterance, the form in which every corpus reaches the rest of the workflow."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from geomix import files
from geomix.errors import UserError

SAMPLE_RATE = 16_000
"""Samples a second of all audio (Hz)."""

SAMPLES_WITHOUT_FRAME = 256
"""A waveform of so many samples or fewer has no feature frame: the transform reflects 256 samples at either end."""

RESERVED = ("<unk>", "<s>", "</s>", "<blank>", "<sos/eos>", "\u2581")
"""What tokenizers keep for themselves: SentencePiece's and ESPnet's symbols, and the mark that stands for a space."""

AUDIO_SUFFIXES = frozenset(
    ".wav .flac .ogg .oga .opus .mp3 .aif .aiff .aifc .au .snd .caf .w64 .rf64 .sph .nist .voc .svx .iff .8svx .sf .ircam "
    ".avr .pvf .paf .fap .mat .htk .sds .sd2 .wve .xi .mpc".split()
)
"""Endings of the files that are taken for recordings: those of the formats that libsndfile reads."""

_COLUMNS = ("id", "speaker", "path", "samples", "speed", "text")
_PREFIX = re.compile(r"^sp\d+(\.\d+)?-")


@dataclass(frozen=True)
class Recording:
    """What a corpus reader finds: an utterance whose audio nobody has looked at yet.

    `path` is the audio's, `listing` that of the file with the transcript. The utterance begins and ends at `start` and
    `end` seconds of the audio; an end of None is the audio's own. With `command` the audio is what that shell command
    writes, and `path` the folder in which it runs.
    """

    id: str
    speaker: str
    path: str
    text: str
    listing: str
    start: float = 0.0
    end: float | None = None
    command: str | None = None

    @property
    def is_cut(self) -> bool:
        """The utterance is a part of its file."""
        return self.start > 0 or self.end is not None


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


def unfit_name(name: str) -> str | None:
    """Why no file format of the workflow carries `name` as an id or a speaker; None when all do.

    Kaldi's tables split at white space, features and speed copies are named by ids.
    """
    if not name:
        return "is empty"
    if len(name.encode(errors="surrogatepass")) > 200:
        return "is longer than 200 bytes"
    for character in name:
        if character.isspace():
            return "has white space in it"
        if character == "/":
            return "has a '/' in it"
        if not character.isprintable():
            return f"has the invisible character U+{ord(character):04X} in it"
    return None


def unfit_text(text: str) -> str | None:
    """The first thing in a transcript that no tokenizer can give back: a reserved symbol or a control character."""
    for symbol in RESERVED:
        if symbol in text:
            return f"the reserved symbol {symbol}" + (" (U+2581)" if symbol == "\u2581" else "")
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs") or character == "\ufeff":
            return f"the control character U+{ord(character):04X}"
    return None


def read_lines(path: str | os.PathLike, cure: str) -> list[str]:
    """Lines of a UTF-8 text file, split at line feeds alone; `cure` ends the sentence when there is no such file.

    A byte-order mark at the start is skipped; CR LF and CR count as a line feed.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file: {cure}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): {cure}") from None
    mark = len(codecs.BOM_UTF8) if content.startswith(codecs.BOM_UTF8) else 0
    try:
        text = content[mark:].decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {mark + error.start} is not UTF-8: save the file as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def write_manifest(
    path: str | os.PathLike, utterances: Iterable[Utterance], root: str | os.PathLike | None = None
) -> None:
    """Write a manifest (TSV, sorted by id), whole or not at all.

    Audio that lies below `root` (by default the parent of the manifest's folder) is named relative to the manifest, so
    that such a folder can be moved; other audio keeps its absolute path.
    """
    path = Path(path)
    folder = path.parent.resolve()
    root = folder.parent if root is None else Path(root).resolve()
    lines = ["\t".join(_COLUMNS)]
    for utterance in sorted(utterances, key=lambda u: u.id):
        audio = Path(utterance.path).absolute()
        if audio.is_relative_to(root):
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
