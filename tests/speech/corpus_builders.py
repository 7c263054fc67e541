"""Small corpora for the tests of this folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from geomix.speech.corpora import check_corpus, generate_corpus, prepare_split
from geomix.speech.manifest import read_manifest, write_manifest


def prepare_corpus(
    corpus: dict[str, Any],
    out: Path,
    speed_factors: Sequence[float] = (1.0,),
    max_seconds: float = 30.0,
    min_seconds: float = 0.1,
    threads: int | None = 1,
) -> dict[str, Any]:
    """Prepare every split of a corpus into `out`/SPLIT, with all manifests in `out`/manifest and `out`/corpus.json, whose
    content is returned; the recordings of a generated corpus go to `out`/audio."""
    corpus = {**corpus, "speed_factors": speed_factors, "max_seconds": max_seconds, "min_seconds": min_seconds}
    if corpus["kind"] in ("smoke", "demo"):
        corpus["path"] = str(out / "audio")
        generate_corpus(corpus, out / "audio")
    folders = {split: out / split for split in ("train", "dev", *corpus["test"])}
    for split, folder in folders.items():
        prepare_split(corpus, split, folder, threads=threads)
        write_manifest(out / f"manifest/{split}.tsv", read_manifest(folder / f"manifest/{split}.tsv"))
    return check_corpus(corpus, folders, out / "corpus.json")


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
