"""Small corpora for the tests of this folder."""

from pathlib import Path

import numpy as np
import soundfile


def tone(seconds: float, frequency: float = 440.0, rate: int = 16_000) -> np.ndarray:
    """A tone with a little seeded noise, 16-bit."""
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(round(frequency)).standard_normal(len(time))
    return np.round(8000 * np.sin(2 * np.pi * frequency * time) + 50 * noise).astype(np.int16)


def write_folder(folder: Path, texts: dict[str, str], seconds: float = 0.5) -> Path:
    """Write utterances (id `speaker-chapter-number` -> text) in the LibriSpeech layout; returns `folder`."""
    for number, (utterance_id, text) in enumerate(texts.items()):
        speaker, chapter, _ = utterance_id.split("-")
        place = folder / speaker / chapter
        place.mkdir(parents=True, exist_ok=True)
        soundfile.write(place / f"{utterance_id}.flac", tone(seconds, 300 + 50 * number), 16_000)
        with open(place / f"{speaker}-{chapter}.trans.txt", "a", encoding="utf-8") as listing:
            listing.write(f"{utterance_id} {text}\n")
    return folder
