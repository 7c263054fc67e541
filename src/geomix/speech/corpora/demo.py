"""The demo corpus: harbour log entries spoken by espeak-ng in a hundred voices, with wind and sea behind them.

The voices of train, dev and test differ. espeak's output depends on its random state and on what it said before;
therefore speakers are dealt into a fixed number of shards, each spoken by a process of its own in a fixed order with
seeded randomness, and the corpus is the same bit for bit however many processes run at once.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from geomix.errors import UserError
from geomix.speech.corpora.demo_grammar import sentence
from geomix.speech.corpora.folder import listings, read_split
from geomix.speech.corpora.generated import generated, write_recording
from geomix.speech.manifest import SAMPLE_RATE
from geomix.speech.threads import processors

__all__ = ["VOICES", "generate", "listings", "read_split", "speak_shard", "speakers"]

ACCENT = "en-us"  # one accent: two take the model longer than the few minutes of this demo
# espeak-ng's voice variants but the robots, dealt out in the order of the alphabet, so that train, dev and test are speakers of one population
_VARIANTS = (
    "adam Alex Alicia Andrea Andy anika Annie announcer antonio AnxiousAndy aunty belinda benjamin boris caleb "
    "david Denis Diogo ed edward edward2 f1 f2 f3 f4 f5 Gene Gene2 grandma grandpa gustave Henrique Hugo ian iven "
    "iven2 iven3 iven4 Jacky john kaukovalta Lee linda m1 m3 m4 m5 m6 m7 m8 marcelo Marco Mario max Michael "
    "michel miguel Mike mike2 Nguyen norbert pablo paul pedro quincy Reed RicishayMax RicishayMax2 RicishayMax3 "
    "rob sandro shelby steph steph2 steph3 Storm travis Tweaky victor zac"
).split()
VOICES = {
    "train": [voice for number, voice in enumerate(_VARIANTS) if number % 8 not in (2, 6)],
    "dev": _VARIANTS[2::8],
    "test": _VARIANTS[6::8],
}
_FIRST_NUMBER = {"train": 100, "dev": 300, "test": 400}
_SHARDS = 8


def generate(corpus: Mapping[str, Any], folder: Path) -> None:
    """Write the splits train, dev and test to `folder`.

    Config keys: seed (default 0); minutes of speech to train on (52), dev_minutes (3), test_minutes (8); snr_db, the
    range of signal-to-noise ratios in dB ([20, 40]).
    """
    given = {key: value for key, value in corpus.items() if value is not None}
    low, high = given.get("snr_db", (20, 40))
    settings = {
        "kind": "demo",
        "version": 6,
        "seed": int(given.get("seed", 0)),
        "minutes": {
            "train": float(given.get("minutes", 52)),
            "dev": float(given.get("dev_minutes", 3)),
            "test": float(given.get("test_minutes", 8)),
        },
        "snr_db": [float(low), float(high)],
    }
    generated(folder, settings, _write_corpus)


def speakers() -> list[tuple[str, str, str]]:
    """(speaker id, split, voice variant) of all speakers, in the order in which they are dealt into shards."""
    return [
        (str(_FIRST_NUMBER[split] + number), split, voice)
        for split, voices in VOICES.items()
        for number, voice in enumerate(voices)
    ]


def _write_corpus(folder: Path, settings: dict) -> None:
    print("speaking the demo corpus with espeak-ng", file=sys.stderr, flush=True)

    def run(shard: int) -> None:
        command = [sys.executable, "-m", __name__, json.dumps(settings), str(folder), str(shard)]
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if result.returncode:
            last = result.stderr.strip().splitlines()[-1] if result.stderr.strip() else f"status {result.returncode}"
            raise UserError(f"{folder}: shard {shard} of the demo corpus failed ({last}): check espeakng-loader")

    with ThreadPoolExecutor(processors()) as pool:
        list(pool.map(run, range(_SHARDS)))


def speak_shard(settings: dict, folder: Path, shard: int) -> None:
    """Speak every speaker of one shard; to be called once in the life of a process (see the module's text)."""
    synthesiser = Synthesiser()
    for index, (speaker, split, voice) in list(enumerate(speakers()))[shard::_SHARDS]:
        random = np.random.default_rng([settings["seed"], index])
        synthesiser.choose(f"{ACCENT}+{voice}")
        rate, pitch, liveliness = random.uniform(155, 190), random.uniform(35, 65), random.uniform(30, 70)
        left, number = settings["minutes"][split] * 60 / len(VOICES[split]), 0
        while number == 0 or left > 2:
            text = sentence(random)
            speech = synthesiser.say(
                text.lower(),
                rate=round(rate * random.uniform(0.93, 1.07)),
                pitch=round(pitch + random.uniform(-5, 5)),
                liveliness=round(liveliness),
                seed=int(random.integers(1, 2**31)),
            )
            waveform = _outdoors(speech, random.uniform(*settings["snr_db"]), random)
            write_recording(folder / split, speaker, 1, number, waveform, text)
            left -= len(waveform) / SAMPLE_RATE
            number += 1


def _outdoors(speech: np.ndarray, snr_db: float, random: np.random.Generator) -> np.ndarray:
    """Speech with some silence around it, noise at `snr_db` that rises and falls like the sea, and a random level."""
    from scipy.signal import lfilter

    before, after = (int(seconds * SAMPLE_RATE) for seconds in random.uniform(0.05, 0.2, 2))
    waveform = np.concatenate([np.zeros(before), speech, np.zeros(after)])
    time = np.arange(len(waveform)) / SAMPLE_RATE
    pole = random.uniform(0, 0.97)  # from white noise to a low rumble
    noise = lfilter([1.0], [1.0, -pole], random.standard_normal(len(waveform)))
    noise *= 1 + 0.6 * np.sin(2 * np.pi * (random.uniform(0.2, 1.0) * time + random.uniform()))
    noise *= np.sqrt(np.mean(speech**2) / np.mean(noise**2)) * 10 ** (-snr_db / 20)
    mixture = waveform + noise
    return mixture / np.abs(mixture).max() * 10 ** (random.uniform(-9, -1) / 20)


class Synthesiser:
    """espeak-ng through ctypes (speak_lib.h of espeak-ng 1.52)."""

    _SYNCHRONOUS = 2  # AUDIO_OUTPUT_SYNCHRONOUS: espeak_Synth returns when all was said
    _DO_NOT_EXIT = 0x8000  # espeakINITIALIZE_DONT_EXIT
    _UTF8 = 1  # espeakCHARS_UTF8
    _RATE, _PITCH, _RANGE = 1, 3, 4  # espeak_PARAMETER

    def __init__(self):
        import espeakng_loader

        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        data = espeakng_loader.get_data_path().encode()
        self._rate = self._library.espeak_Initialize(self._SYNCHRONOUS, 0, data, self._DO_NOT_EXIT)
        if self._rate <= 0:
            raise UserError(f"{espeakng_loader.get_data_path()}: espeak-ng cannot start: install espeakng-loader again")
        self._chunks: list[np.ndarray] = []

        def receive(samples, count, events):
            if samples and count > 0:
                self._chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
            return 0

        callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self._callback = callback(receive)  # kept: espeak holds a bare pointer to it
        self._library.espeak_SetSynthCallback(self._callback)
        self._library.espeak_ng_SetRandSeed.argtypes = [ctypes.c_long]

    def choose(self, voice: str) -> None:
        """Choose a voice: `accent+variant`."""
        if self._library.espeak_SetVoiceByName(voice.encode()):
            raise UserError(f"voice {voice}: espeak-ng does not have it: install espeakng-loader 0.2.4")

    def say(self, text: str, rate: int, pitch: int, liveliness: int, seed: int) -> np.ndarray:
        """Speech at 16 kHz, float64 in [-1, 1]; rate in words a minute, pitch and liveliness (its range) 0 to 99."""
        from scipy.signal import resample_poly

        self._chunks.clear()
        self._library.espeak_ng_SetRandSeed(seed)
        for parameter, value in ((self._RATE, rate), (self._PITCH, pitch), (self._RANGE, liveliness)):
            self._library.espeak_SetParameter(parameter, value, 0)
        content = text.encode()
        failed = self._library.espeak_Synth(content, len(content) + 1, 0, 0, 0, self._UTF8, None, None)
        if failed or not self._chunks:
            raise UserError(f"{text!r}: espeak-ng said nothing (status {failed}): install espeakng-loader 0.2.4")
        samples = np.concatenate(self._chunks)
        spoken = np.flatnonzero(np.abs(samples.astype(np.int32)) > 64)  # espeak ends each sentence with a pause
        samples = samples[spoken[0] : spoken[-1] + 1]
        divisor = np.gcd(SAMPLE_RATE, self._rate)
        return resample_poly(samples / 32768, SAMPLE_RATE // divisor, self._rate // divisor)


if __name__ == "__main__":
    speak_shard(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
