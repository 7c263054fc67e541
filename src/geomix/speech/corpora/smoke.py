"""Tone bursts for words: a corpus of a minute or two that a tiny model learns in seconds, for checking the workflow.

A word is one note of the scale (HUSH is a burst of noise). Speakers differ in timbre, pitch and tempo.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geomix.speech.corpora.folder import listings, read_split
from geomix.speech.corpora.generated import generated, write_recording
from geomix.speech.manifest import SAMPLE_RATE

__all__ = ["WORDS", "generate", "listings", "read_split"]

WORDS = ("DO", "RE", "MI", "FA", "SOL", "LA", "TI", "HUSH")
# semitones above the tonic, spread over two and a half octaves so that neighbours fall into different mel bands
_SEMITONES = (0, 5, 9, 14, 18, 23, 28)
_TONIC = 330.0  # Hz
# speakers and utterances of each
_SPLITS = {"train": (8, 6), "dev": (4, 2), "test": (6, 3)}


def generate(corpus: Mapping[str, Any], folder: Path) -> None:
    """Write the splits train, dev and test to `folder`.

    Config keys: seed (default 0), speakers and utterances (of each speaker, in train; defaults 8 and 6).
    """
    given = {key: value for key, value in corpus.items() if value is not None}
    settings = {
        "seed": given.get("seed", 0),
        "speakers": given.get("speakers", _SPLITS["train"][0]),
        "utterances": given.get("utterances", _SPLITS["train"][1]),
    }
    generated(folder, {"kind": "smoke", "version": 1, **settings}, _write_corpus)


def _write_corpus(folder: Path, settings: dict) -> None:
    counts = {**_SPLITS, "train": (settings["speakers"], settings["utterances"])}
    number = 0
    for split, (speakers, utterances) in counts.items():
        for _ in range(speakers):
            number += 1
            random = np.random.default_rng([settings["seed"], number])
            voice = {
                "harmonics": random.uniform(0.05, 1.0, 6) / np.arange(1, 7),
                "detune": 2 ** (random.uniform(-0.5, 0.5) / 12),
                "tempo": random.uniform(0.85, 1.15),
            }
            for utterance in range(utterances):
                # every word comes up equally often: a speaker's words are dealt from shuffled packs
                words = [WORDS[i] for i in random.permutation(len(WORDS))[: random.integers(3, 7)]]
                write_recording(
                    folder / split, f"{number:03d}", 1, utterance, _sing(words, voice, random), " ".join(words)
                )


def _sing(words: list[str], voice: dict, random: np.random.Generator) -> np.ndarray:
    parts = []
    for word in words:
        samples = int(random.uniform(0.16, 0.24) / voice["tempo"] * SAMPLE_RATE)
        time = np.arange(samples) / SAMPLE_RATE
        if word == "HUSH":
            sound = random.standard_normal(samples) * 0.3
        else:
            pitch = _TONIC * voice["detune"] * 2 ** (_SEMITONES[WORDS.index(word)] / 12)
            orders = np.arange(1, 7)
            sound = (voice["harmonics"] * (pitch * orders < 7500)) @ np.sin(2 * np.pi * pitch * np.outer(orders, time))
        parts += [np.zeros(int(random.uniform(0.05, 0.1) * SAMPLE_RATE)), sound * np.hanning(samples) ** 0.5]
    waveform = np.concatenate([*parts, np.zeros(SAMPLE_RATE // 12)])
    return 0.3 * waveform / np.abs(waveform).max() + 0.003 * random.standard_normal(len(waveform))
