"""What a split of the configuration asks for: which splits of the corpus are read, and whose utterances stay."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from geomix.errors import UserError
from geomix.speech import normalisers
from geomix.speech.corpora.faults import Faults
from geomix.speech.corpora.sources import Source
from geomix.speech.manifest import Recording, original_id, unfit_name, unfit_text

KINDS = ("librispeech", "folder", "kaldi", "manifest", "smoke", "demo")


@dataclass(frozen=True)
class Reading:
    """A split as its corpus holds it: its recordings, the counts of each corpus split read, and the files read for it."""

    recordings: list[Recording]
    counts: dict[str, dict[str, int]]
    listings: list[Source]


def reader_of(corpus: Mapping[str, Any]) -> ModuleType:
    """The module that reads the corpus's kind."""
    kind = corpus["kind"]
    if kind not in KINDS:
        raise UserError(f"corpus {corpus['name']}: kind {kind!r} is not one of {', '.join(KINDS)}")
    return importlib.import_module(f"geomix.speech.corpora.{kind}")


def choices(corpus: Mapping[str, Any]) -> dict[str, Sequence[str] | Mapping[str, Any]]:
    """Train, dev and each test set as the configuration chooses them: corpus splits, or speakers taken out of train."""
    name, tests = corpus["name"], corpus["test"]
    if not isinstance(tests, Mapping):
        tests = {split: [split] for split in tests}
    found = {"train": corpus["train"], "dev": corpus["dev"]}
    for test, choice in tests.items():
        if test == "train" or (test == "dev" and choice != found["dev"]):
            raise UserError(
                f"corpus {name}: a test set is called train, or dev without being dev: give it another name"
            )
        found[test] = choice
    speakers: dict[str, str] = {}
    for split, choice in found.items():
        for speaker in held_out(choice):
            if speaker in speakers:
                both = f"{_called(speakers[speaker])} and {_called(split)}"
                raise UserError(f"corpus {name}: speaker {speaker} is held out twice: leave one of {both}")
            speakers[speaker] = split
    return found


def held_out(choice: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """The speakers that a choice takes out of train."""
    return [str(speaker) for speaker in choice["hold_out_speakers"]] if isinstance(choice, Mapping) else []


def _called(split: str) -> str:
    return split if split in ("train", "dev") else f"test set {split}"


def read_split(corpus: Mapping[str, Any], split: str, faults: Faults) -> Reading:
    """Read what one split needs, with counts, ids, speakers and transcripts checked.

    Train is its corpus splits without the speakers whom dev or a test set holds out; these are read from there too.
    """
    name, chosen = corpus["name"], choices(corpus)
    if split not in chosen:
        raise UserError(f"corpus {name}: has no split {split}: give one of {', '.join(chosen)}")
    wanted = held_out(chosen[split])
    reading = _read_sources(corpus, chosen["train"] if isinstance(chosen[split], Mapping) else chosen[split], faults)
    recordings = reading.recordings
    if split == "train":
        _check_speakers(name, recordings, chosen, faults)
        out = {speaker for choice in chosen.values() for speaker in held_out(choice)}
        recordings = [r for r in recordings if r.speaker not in out]
    elif wanted:
        _check_speakers(name, recordings, {split: chosen[split]}, faults)
        recordings = [r for r in recordings if r.speaker in set(wanted)]
    seen: dict[str, Recording] = {}
    for r in recordings:
        if r.id in seen:
            faults.add("id twice", f"{r.path}: id {r.id} is also that of {seen[r.id].path}: make each id unique")
        seen.setdefault(r.id, r)
    return Reading(list(seen.values()), reading.counts, reading.listings)


def _read_sources(corpus: Mapping[str, Any], names: Iterable[str], faults: Faults) -> Reading:
    """The union of some splits of the corpus."""
    name, reader = corpus["name"], reader_of(corpus)
    normalise = normalisers.named(corpus.get("normaliser") or "none")
    read = Reading([], {}, [])
    for source in names:
        listings = [Source.of(path) for path in reader.listings(corpus, source) if Path(path).is_file()]
        faults_before = len(faults.found)
        found = reader.read_split(corpus, source, faults)
        if not found and len(faults.found) == faults_before:
            faults.add("empty split", f"corpus {name}: split {source} has no utterance: check the path in the config")
        recordings = [r for each in found if (r := _checked(each, corpus, normalise, faults))]
        read.counts[source] = {
            "utterances": len(recordings),
            "speakers": len({r.speaker for r in recordings}),
            "words": sum(len(r.text.split()) for r in recordings),
            "characters": sum(len(r.text) for r in recordings),
        }
        check_counts(corpus, source, read.counts[source], faults)
        read.recordings.extend(recordings)
        read.listings.extend(listings)
    return read


def _check_speakers(name: str, train: Sequence[Recording], chosen: Mapping[str, Any], faults: Faults) -> None:
    speakers = {r.speaker for r in train}
    for split, choice in chosen.items():
        for speaker in held_out(choice):
            if speaker not in speakers:
                faults.add(
                    "speaker who is not there",
                    f"corpus {name}: {_called(split)} holds out {speaker}, a speaker whom train lacks: correct it",
                )


def check_counts(corpus: Mapping[str, Any], source: str, found: Mapping[str, int], faults: Faults) -> None:
    """Compare the counts of a corpus split with the configuration's `expected` ones, or with the published ones."""
    reader = reader_of(corpus)
    published = reader.published(corpus["name"]) if hasattr(reader, "published") else {}
    expected = {**published, **(corpus.get("expected") or {})}.get(source) or {}
    for what, count in expected.items():
        if count is not None and found[what] != count:
            faults.add(
                "counts that differ",
                f"corpus {corpus['name']}: {source} has {found[what]} {what} instead of {count}: complete the copy, or "
                f"state the count of a cut as expected: {{{source}: {{{what}: {found[what]}}}}} in the config",
            )


def _checked(
    recording: Recording, corpus: Mapping[str, Any], normalise: Callable[[str], str], faults: Faults
) -> Recording | None:
    """The recording with its text normalised, when every later file format can carry id, speaker, path and transcript."""
    listing, i = recording.listing, recording.id
    if unfit := unfit_name(i):
        faults.add("unfit id or speaker", f"{listing}: the id {i!r} {unfit}: rename it")
    elif original_id(i) != i:
        faults.add("unfit id or speaker", f"{listing}: id {i} looks like a speed copy's: rename it")
    elif unfit := unfit_name(recording.speaker):
        faults.add(
            "unfit id or speaker",
            f"{listing}: the speaker {recording.speaker!r} of {i} {unfit}: rename the speaker",
        )
    elif any(c in recording.path for c in "\t\n\r") or any("\ud800" <= c <= "\udfff" for c in recording.path):
        faults.add(
            "unfit path",
            f"{listing}: the path {recording.path!r} of {i} has a tab, a line end or no UTF-8: rename the file",
        )
    elif not recording.text:
        faults.add(
            "empty transcript",
            f"{listing}: the transcript of {i} is empty: write it, or remove its line and the recording",
        )
    elif unfit := unfit_text(recording.text):
        faults.add(
            "symbol that no tokenizer gives back",
            f"{listing}: the transcript of {i} holds {unfit}, which no tokenizer can give back: write what is said "
            "instead, or take the utterance out",
        )
    elif not (text := " ".join(normalise(recording.text).split())):
        faults.add(
            "empty transcript",
            f"{listing}: the normaliser {corpus['normaliser']} leaves nothing of the transcript {recording.text!r} of {i}: "
            "write what is said, or take the utterance out",
        )
    else:
        return replace(recording, text=text)
    return None
