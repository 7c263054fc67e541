"""The LibriSpeech folder form: `<path>/<split>/<speaker>/<chapter>/<speaker>-<chapter>-<number>.flac` and `*.trans.txt`.

SPEAKERS.TXT is not needed: the speaker is the folder's name. CMU AN4 (948 training utterances of 74 speakers, 130 test
utterances of 10) is used in this form; its published counts are asserted when the corpus is named an4.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.speech.manifest import Recording, read_lines

_LISTINGS = "*/*/*.trans.txt"
_AN4 = {
    "train": {"utterances": 948, "speakers": 74, "words": 5442},
    "test": {"utterances": 130, "speakers": 10, "words": 773},
}


def published(name: str) -> dict[str, dict[str, int]]:
    """Published counts by split of the corpus called `name`."""
    return _AN4 if name == "an4" else {}


def read_split(corpus: Mapping[str, Any], split: str) -> list[Recording]:
    """All recordings of one split folder, sorted by id; each transcript must have its FLAC and the reverse."""
    return read_folder(Path(corpus["path"]) / split)


def listings(corpus: Mapping[str, Any], split: str) -> list[Path]:
    """The files with the transcripts of one split folder."""
    return sorted((Path(corpus["path"]) / split).glob(_LISTINGS))


def read_folder(folder: Path) -> list[Recording]:
    """All recordings below `folder` in the LibriSpeech layout, sorted by id.

    A line of `*.trans.txt` is an id, a space and the text; quotes and commas mean nothing.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder: correct path or the split's name in the config, or put the corpus there"
        )
    audio: dict[str, Path] = {}
    for path in sorted(folder.glob("*/*/*.flac")):
        if path.stem in audio:
            raise UserError(f"{path}: {audio[path.stem]} has the same name: make each id unique")
        audio[path.stem] = path
    recordings: dict[str, Recording] = {}
    for listing in sorted(folder.glob(_LISTINGS)):
        for line in read_lines(listing, "put it back"):
            utterance_id, _, text = line.strip().partition(" ")
            path = listing.parent / f"{utterance_id}.flac"
            if not utterance_id:
                continue
            if utterance_id in recordings:
                raise UserError(f"{listing}: id {utterance_id} has a second transcript: remove one of its lines")
            if audio.get(utterance_id) != path:
                raise UserError(
                    f"{listing}: {utterance_id} has a transcript and no {path.name}: restore it or cut the line"
                )
            if not text.strip():
                raise UserError(
                    f"{listing}: the transcript of {utterance_id} is empty: write it, or remove it and its FLAC"
                )
            speaker = listing.parent.parent.name
            recordings[utterance_id] = Recording(
                utterance_id, speaker, str(path.absolute()), " ".join(text.split()), str(listing)
            )
    for utterance_id, path in audio.items():
        if utterance_id not in recordings:
            raise UserError(
                f"{path}: no *.trans.txt beside it has a line for it: add its transcript or remove the file"
            )
    return [recordings[utterance_id] for utterance_id in sorted(recordings)]
