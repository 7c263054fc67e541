"""The LibriSpeech folder form: `<path>/<split>/<speaker>/<chapter>/<speaker>-<chapter>-<number>.flac` and `*.trans.txt`.

The recordings may be of any format that soundfile reads. SPEAKERS.TXT is not needed: the speaker is the folder's name.
CMU AN4 (948 training utterances of 74 speakers, 130 test utterances of 10) is used in this form; its published counts are
asserted when the corpus is named an4.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.speech.corpora.faults import Faults
from geomix.speech.manifest import AUDIO_SUFFIXES, Recording, read_lines

LISTINGS = "*/*/*.trans.txt"
_AN4 = {
    "train": {"utterances": 948, "speakers": 74, "words": 5442},
    "test": {"utterances": 130, "speakers": 10, "words": 773},
}


def published(name: str) -> dict[str, dict[str, int]]:
    """Published counts by split of the corpus called `name`."""
    return _AN4 if name == "an4" else {}


def read_split(corpus: Mapping[str, Any], split: str, faults: Faults) -> list[Recording]:
    """All recordings of one split folder, sorted by id; each transcript must have its recording and the reverse."""
    return read_folder(Path(corpus["path"]) / split, faults)


def listings(corpus: Mapping[str, Any], split: str) -> list[Path]:
    """The files with the transcripts of one split folder."""
    return sorted((Path(corpus["path"]) / split).glob(LISTINGS))


def read_folder(folder: Path, faults: Faults) -> list[Recording]:
    """All recordings below `folder` in the LibriSpeech layout, sorted by id.

    A line of `*.trans.txt` is an id, a space and the text; quotes and commas mean nothing.
    """
    if not folder.is_dir():
        faults.add(
            "missing file",
            f"{folder}: no such folder: correct path or the split's name in the config, or put the corpus there",
        )
        return []
    audio: dict[str, Path] = {}
    for path in sorted(path for path in folder.glob("*/*/*") if path.suffix.lower() in AUDIO_SUFFIXES):
        if path.stem in audio:
            faults.add("id twice", f"{path}: {audio[path.stem]} has the same name: make each id unique")
        audio.setdefault(path.stem, path)
    recordings: dict[str, Recording] = {}
    for listing in sorted(folder.glob(LISTINGS)):
        with faults.catch("unreadable text file"):
            for line in read_lines(listing, "put it back"):
                _read_line(line, listing, audio, recordings, faults)
    for utterance_id, path in audio.items():
        if utterance_id not in recordings:
            faults.add(
                "recording without a transcript",
                f"{path}: no *.trans.txt beside it has a line for it: add its transcript or remove the file",
            )
    return [recordings[utterance_id] for utterance_id in sorted(recordings)]


def _read_line(
    line: str, listing: Path, audio: Mapping[str, Path], recordings: dict[str, Recording], faults: Faults
) -> None:
    """Add the recording of one line of `listing` to `recordings`."""
    utterance_id, _, text = line.strip().partition(" ")
    if not utterance_id:
        return
    path = audio.get(utterance_id)
    if utterance_id in recordings:
        faults.add("id twice", f"{listing}: id {utterance_id} has a second transcript: remove one of its lines")
    elif path is None or path.parent != listing.parent:
        faults.add(
            "transcript without a recording",
            f"{listing}: {utterance_id} has a transcript and no {utterance_id}.flac or other recording beside it: "
            "restore it or cut the line",
        )
    else:
        text, speaker = " ".join(text.split()), listing.parent.parent.name
        recordings[utterance_id] = Recording(utterance_id, speaker, str(path.absolute()), text, str(listing))
