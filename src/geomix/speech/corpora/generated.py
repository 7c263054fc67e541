"""What the built-in corpora share: FLAC files in the LibriSpeech layout, made whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from geomix import files
from geomix.errors import UserError
from geomix.speech.audio import as_pcm16
from geomix.speech.manifest import SAMPLE_RATE


def generated(folder: Path, settings: dict, write: Callable[[Path, dict], None]) -> Path:
    """The folder of a generated corpus: kept if it was made with these settings, else made by `write(folder, settings)`.

    It is written beside its place and renamed when complete; settings.json in it says what it was made with. A folder
    that holds anything else is left alone.
    """
    marker = folder / "settings.json"
    if marker.exists() and files.read_json(marker) == settings:
        return folder
    if folder.exists() and not marker.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is no generated corpus and is left as it is: name another place, or remove it")
    building = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    try:
        building.mkdir(parents=True)
        write(building, settings)
        files.write_json(building / "settings.json", settings)
        shutil.rmtree(folder, ignore_errors=True)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


def write_recording(split: Path, speaker: str, chapter: int, number: int, waveform: np.ndarray, text: str) -> None:
    """Add a recording (float, clipped to [-1, 1), 16 kHz) and its line in the chapter's *.trans.txt.

    Recordings of a chapter must come in ascending order.
    """
    folder = split / speaker / str(chapter)
    folder.mkdir(parents=True, exist_ok=True)
    utterance_id = f"{speaker}-{chapter}-{number:04d}"
    soundfile.write(folder / f"{utterance_id}.flac", as_pcm16(waveform), SAMPLE_RATE, subtype="PCM_16")
    with open(folder / f"{speaker}-{chapter}.trans.txt", "a", encoding="utf-8") as listing:
        listing.write(f"{utterance_id} {text}\n")
