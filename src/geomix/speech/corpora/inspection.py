"""What the recordings of a split hold: each decoded in full, cut, converted or fetched from a command where that is asked for."""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from geomix.speech.audio import AudioFault, as_pcm16, decode_whole, resampled, samples_hash
from geomix.speech.corpora.faults import Faults
from geomix.speech.corpora.sources import Source
from geomix.speech.manifest import SAMPLE_RATE, Recording
from geomix.speech.progress import Progress
from geomix.speech.threads import processors

_FULL_SCALE = 1 - 2**-15  # the largest positive value of 16 bits
_SLACK = 0.5  # seconds by which a segment may pass its recording's end, as Kaldi's extract-segments allows


@dataclass(frozen=True)
class Level:
    """How loud a recording is: its largest sample, its root mean square (full scale is 1), and the share of samples at full scale."""

    peak: float
    rms: float
    clipped: float

    @classmethod
    def of(cls, samples: np.ndarray) -> Level:
        """Of samples in [-1, 1)."""
        size = np.abs(samples)
        peak = float(size.max(initial=0.0))
        rms = math.sqrt(float(np.mean(np.square(samples, dtype=np.float64)))) if len(samples) else 0.0
        return cls(peak, rms, float(np.mean(size >= _FULL_SCALE)) if peak >= _FULL_SCALE else 0.0)


@dataclass(frozen=True)
class Audio:
    """The audio of an utterance as the workflow reads it.

    path : the recording itself, or what was made of it
    samples, hash : their number at 16 kHz and their hash
    source : the file that it comes from, as it stood before; None for a command's output
    form : rate and channels of a recording that was converted; None for one of 16 kHz and one channel
    unchecked : format of a file whose length nothing could check
    """

    path: str
    samples: int
    hash: str
    level: Level
    source: Source | None
    form: str | None = None
    unchecked: str | None = None


@dataclass(frozen=True)
class Handling:
    """What may be done with a recording: `resample` other rates and channels; `folder` for what is made of it, None: nothing is written."""

    resample: bool = False
    folder: Path | None = None


def inspect(
    what: str, recordings: Iterable[Recording], handling: Handling, faults: Faults, threads: int | None = None
) -> dict[str, Audio]:
    """Audio by utterance id. Every file and command is read once; decoding releases the interpreter lock: threads do."""
    sources: dict[tuple[str, str | None], list[Recording]] = {}
    for recording in recordings:
        sources.setdefault((recording.path, recording.command), []).append(recording)
    groups = [sources[key] for key in sorted(sources, key=lambda key: (key[0], key[1] or ""))]
    progress = Progress(f"checking {what}", len(groups))
    found: dict[str, Audio] = {}
    with ThreadPoolExecutor(threads or processors()) as pool:
        try:
            for outcome in pool.map(lambda group: _inspect_source(group, handling), groups):
                read, wrong = outcome
                for fault in wrong:
                    faults.add(fault.kind, str(fault))
                found |= read
                progress.add(1, sum(audio.samples for audio in read.values()) / SAMPLE_RATE)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # a bad file is told at once, not after the last one
            raise
    progress.close()
    _warn(found, faults)
    return found


def _inspect_source(recordings: Sequence[Recording], handling: Handling) -> tuple[dict[str, Audio], list[AudioFault]]:
    """Audio by id of all utterances of one file or command, and what is wrong with them."""
    first = recordings[0]
    try:
        if first.command is None:
            # a file's absence is told by its decoder
            source = Source.of(first.path) if os.path.exists(first.path) else Source(first.path, 0, 0)
            return _inspect_file(first.path, recordings, source, handling)
        with tempfile.TemporaryDirectory() as folder:
            return _inspect_file(_output_of(first, Path(folder)), recordings, None, handling)
    except AudioFault as fault:
        return {}, [fault]


def _output_of(recording: Recording, folder: Path) -> str:
    """A file with what the command of a recording writes."""
    path = folder / "output"
    with open(path, "wb") as out:
        done = subprocess.run(
            recording.command,
            shell=True,
            cwd=recording.path,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
        )
    if done.returncode or not path.stat().st_size:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise AudioFault(
            "command that failed",
            f"{recording.listing}: the command {recording.command!r} of {recording.id} ended with status {done.returncode} and "
            f"{path.stat().st_size} bytes ({said[-1] if said else 'it says nothing'}): mend it in wav.scp",
        )
    return str(path)


def _inspect_file(
    path: str, recordings: Sequence[Recording], source: Source | None, handling: Handling
) -> tuple[dict[str, Audio], list[AudioFault]]:
    try:
        sound = decode_whole(path, any_form=handling.resample)
    except AudioFault as fault:
        if source is None:  # the name of a temporary file helps nobody
            name = f"{recordings[0].listing}: what the command of {recordings[0].id} writes"
            raise AudioFault(fault.kind, str(fault).replace(path, name)) from None
        raise
    samples = sound.samples if sound.is_plain else resampled(sound)
    channels = 1 if sound.samples.ndim == 1 else sound.samples.shape[1]
    form = None if sound.is_plain else f"{sound.rate} Hz, {channels} channel{'s' * (channels > 1)}"
    found: dict[str, Audio] = {}
    wrong: list[AudioFault] = []
    for recording in recordings:
        part = samples
        if recording.is_cut:
            begin, end = (None if t is None else round(t * SAMPLE_RATE) for t in (recording.start, recording.end))
            if begin >= len(samples) or (end or 0) > len(samples) + _SLACK * SAMPLE_RATE:
                wrong.append(
                    AudioFault(
                        "segment outside its recording",
                        f"{recording.listing}: {recording.id} lies at {recording.start:g} to {recording.end or math.inf:g} s of "
                        f"{recording.path}, which has {len(samples) / SAMPLE_RATE:g} s: mend its line in segments",
                    )
                )
                continue
            part = samples[begin:end]
        made = source is None or form is not None or recording.is_cut
        name = path
        if made:
            integers = as_pcm16(part)
            part = integers.astype(np.float32) / 32768
            if handling.folder:
                name = str(handling.folder / f"{recording.id}.flac")
                soundfile.write(name, integers, SAMPLE_RATE, subtype="PCM_16")
        found[recording.id] = Audio(name, len(part), samples_hash(part), Level.of(part), source, form, sound.unchecked)
    return found, wrong


def _warn(found: dict[str, Audio], faults: Faults) -> None:
    """What stops nothing and makes a worse model."""
    for i, audio in found.items():
        name = audio.source.path if audio.source else i
        if audio.unchecked:
            faults.warn(
                "length that nothing checks",
                f"{name}: a {audio.unchecked} file, which may be cut short without a sign: convert it to FLAC",
            )
        if audio.level.peak == 0 and audio.samples:
            faults.warn("silence", f"{name}: all samples of {i} are 0: look whether it was recorded")
        elif audio.level.clipped > 0.001:
            faults.warn(
                "clipping",
                f"{name}: {100 * audio.level.clipped:.1f} % of the samples of {i} are at full scale: record it softer",
            )
