"""A corpus looked at as a whole, without preparing it: all that is wrong with it, and what it holds."""

from __future__ import annotations

import math
import statistics
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geomix.models.config.lengths import subsampled_length
from geomix.speech.batching import ctc_frames_needed
from geomix.speech.corpora.checks import check_ids
from geomix.speech.corpora.faults import Faults
from geomix.speech.corpora.preparation import Examined, examine_split
from geomix.speech.corpora.splits import choices
from geomix.speech.manifest import SAMPLE_RATE, Utterance, original_id
from geomix.speech.tokenizer import Tokenizer, train_tokenizer

_HOP = 160  # samples between two log-mel frames


@dataclass(frozen=True)
class SplitStatistics:
    """What a split holds, without copies at other speeds.

    seconds : of all utterances together; lengths : of the shortest, the median and the longest one
    words, characters : number of different ones; unknown : words that the tokenizer cannot spell, with their counts
    duplicates : utterances whose audio is, sample by sample, that of another one of the split
    level : median of the utterances' root mean squares in dB below full scale; clipped : share of all samples at full scale
    """

    utterances: int
    speakers: int
    seconds: float
    lengths: tuple[float, float, float]
    words: int
    characters: int
    unknown: dict[str, int]
    duplicates: int
    level: float
    clipped: float


@dataclass(frozen=True)
class Examination:
    """What is wrong with a corpus, what its splits hold, the characters of the training text with their counts, the tokenizer's units."""

    faults: Faults
    splits: dict[str, SplitStatistics]
    characters: Counter[str]
    units: int | None


def examine(config: Mapping[str, Any], corpus: Mapping[str, Any], threads: int | None = None) -> Examination:
    """Look at every split of `corpus` (`settings.corpus_at`), with the checks of its preparation, and write nothing."""
    faults = Faults(collect=True)
    found = {split: examine_split(corpus, split, faults, threads=threads) for split in choices(corpus)}
    check_ids(
        corpus["name"],
        {split: part.utterances for split, part in found.items()},
        {split: part.dropped for split, part in found.items()},
        faults,
    )
    _warn_of_drops(found, faults)
    _warn_of_equal_audio(found, faults)
    train = [u.text for u in found["train"].originals]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = None
        with faults.catch("tokenizer that does not fit the text"):
            train_tokenizer(train, folder, config["tokenizer"]["kind"], config["tokenizer"]["size"])
            tokenizer = Tokenizer.load(folder)
    splits = {split: _statistics(part, tokenizer) for split, part in found.items() if part.originals}
    if tokenizer:
        _warn_of_texts(found, splits, tokenizer, config["model"]["subsampling"], faults)
    return Examination(faults, splits, Counter("".join(train)), tokenizer and tokenizer.size)


def _warn_of_drops(found: Mapping[str, Examined], faults: Faults) -> None:
    for split, part in found.items():
        seconds = {u.id: u.seconds for u in part.originals}
        for key, what in (("too_long", "longer"), ("too_short", "shorter")):
            for i in sorted({original_id(i) for i in part.dropped[key]}):
                faults.warn(
                    f"{what} than the bounds",
                    f"{split}: {i} has {seconds[i]:.2f} s and is left out, at one speed at least: see corpus.min_seconds and max_seconds",
                )


def _warn_of_equal_audio(found: Mapping[str, Examined], faults: Faults) -> None:
    """Recordings that are there under two ids: within a split they only weigh more, across splits they are tested as seen."""
    first: dict[str, tuple[str, str]] = {}
    for split, part in found.items():
        for i, audio in part.audio.items():
            other = first.setdefault(audio.hash, (split, i))
            if other[1] == i or not audio.samples:
                continue
            where = "in one split" if other[0] == split else "across splits"
            faults.warn(f"equal recordings {where}", f"{split}: {i} is sample by sample {other[1]} of {other[0]}")


def _warn_of_texts(
    found: Mapping[str, Examined],
    splits: Mapping[str, SplitStatistics],
    tokenizer: Tokenizer,
    subsampling: int,
    faults: Faults,
) -> None:
    for split, statistic in splits.items():
        for word, count in sorted(statistic.unknown.items()):
            faults.warn(
                "words outside the tokenizer",
                f"{split}: {word!r} ({count} times) cannot be spelt and counts as an error",
            )
    for split in ("train", "dev"):
        utterances = found[split].utterances
        lost = [u for u in utterances if not _alignable(u, tokenizer, subsampling)]
        for u in lost:
            faults.warn(
                "transcript longer than its recording allows",
                f"{split}: {u.id} has {len(u.text)} characters in {u.seconds:.2f} s, more units than the model has frames: "
                "look at its transcript, or choose larger units",
            )
        if lost and len(lost) == len(utterances) and split == "train":
            faults.add(
                "nothing to train on",
                f"{split}: every transcript has more units than its recording has frames: choose larger units or a smaller "
                "model.subsampling",
            )


def _alignable(u: Utterance, tokenizer: Tokenizer, subsampling: int) -> bool:
    frames = subsampled_length(u.samples // _HOP + 1, subsampling)
    return frames >= max(1, ctc_frames_needed(tokenizer.encode(u.text)))


def _statistics(part: Examined, tokenizer: Tokenizer | None) -> SplitStatistics:
    texts = [u.text for u in part.originals]
    seconds = [u.samples / SAMPLE_RATE for u in part.originals]
    audio = list(part.audio.values())
    total = max(sum(a.samples for a in audio), 1)
    levels = [20 * math.log10(a.level.rms) for a in audio if a.level.rms]
    return SplitStatistics(
        utterances=len(texts),
        speakers=len({u.speaker for u in part.originals}),
        seconds=sum(seconds),
        lengths=(min(seconds), statistics.median(seconds), max(seconds)),
        words=len({word for text in texts for word in text.split()}),
        characters=len({c for text in texts for c in text if c != " "}),
        unknown=tokenizer.unknown_words(texts) if tokenizer else {},
        duplicates=len(audio) - len({a.hash for a in audio}),
        level=statistics.median(levels) if levels else -math.inf,
        clipped=sum(a.level.clipped * a.samples for a in audio) / total,
    )


def character_names(characters: Sequence[str]) -> str:
    """Characters for people: a combining mark is shown with its code, which alone no terminal shows."""
    return " ".join(f"U+{ord(c):04X}" if unicodedata.combining(c) or not c.isprintable() else c for c in characters)
