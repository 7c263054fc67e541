"""Reading audio: mono, 16 kHz, whole, finite; anything else ends in one sentence, or is converted where that is asked for."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import soundfile

from geomix.errors import UserError
from geomix.speech.audio_headers import COPY_AGAIN, source_of
from geomix.speech.manifest import SAMPLE_RATE, perturbed_samples, speed_fraction

if TYPE_CHECKING:
    import torch

# the formats whose stated length is compared with their content, here or by their decoder
_CHECKED_FORMATS = ("WAV", "WAVEX", "RF64", "AIFF", "AU", "CAF", "W64", "NIST", "FLAC", "OGG", "MP3", "MPEG")
_UNSTATED = 2**63 - 1  # libsndfile's number of samples for a FLAC that does not state it
_LARGEST = 2.0**31
"""Samples beyond this (full scale is 1, that of 32-bit integers 2**31) are no sound: their power would overflow."""
_BLOCK = 1 << 20
# torchaudio's parameters of the quality that librosa calls kaiser_best (torchaudio's tutorial "Audio Resampling")
_RESAMPLER = {
    "resampling_method": "sinc_interp_kaiser",
    "lowpass_filter_width": 64,
    "rolloff": 0.9475937167399596,
    "beta": 14.769656459379492,
}


class AudioFault(UserError):
    """What is wrong with a recording; `kind` says it in a few words."""

    def __init__(self, kind: str, sentence: str):
        super().__init__(sentence)
        self.kind = kind


@dataclass(frozen=True)
class Sound:
    """A decoded file.

    samples : float32, (samples,) or (samples, channels), in [-1, 1) but for files of floating point
    rate : samples a second
    subtype : libsndfile's name of their form in the file (PCM_16, ...)
    unchecked : libsndfile's name of a format whose stated length nothing compares with its content
    """

    samples: np.ndarray
    rate: int
    subtype: str
    unchecked: str | None = None

    @property
    def is_plain(self) -> bool:
        """One channel at 16 kHz."""
        return self.rate == SAMPLE_RATE and self.samples.ndim == 1


def read_audio(path: str | os.PathLike) -> np.ndarray:
    """All samples of a mono 16 kHz file as float32, in [-1, 1) but for files of floating point, shape (samples,).

    Raises
    ------
    UserError
        For a file that cannot be decoded, holds less than its header states, has another rate or more channels, or a
        sample that is not finite.
    """
    return decode(path).samples


def inspect_audio(path: str | os.PathLike) -> tuple[int, str]:
    """Decode a file fully, as `decode_whole` does, and return its number of samples and the hash of them."""
    samples = decode_whole(path).samples
    return len(samples), samples_hash(samples)


def samples_hash(samples: np.ndarray) -> str:
    """SHA-256 of samples as `read_audio` gives them."""
    return hashlib.sha256(samples.astype("<f4", copy=False).tobytes()).hexdigest()


def decode_whole(path: str | os.PathLike, any_form: bool = False) -> Sound:
    """Decode a file whose content must agree with what it says of itself.

    What was decoded must have the length that the header states and, in a FLAC file, the MD5 there (STREAMINFO), so
    that a truncated or damaged file is found here and not in the middle of a training.
    """
    sound = decode(path, any_form)
    stored = _flac_md5(path)
    if stored is not None and _integer_md5(sound.samples, sound.subtype) not in (None, stored):
        raise AudioFault(
            "damaged recording",
            f"{path}: the decoded samples do not have the MD5 {stored} of its header: {COPY_AGAIN}",
        )
    return sound


class _Sequential(soundfile.SoundFile):
    """A file that is read to its end and never sought in: the end of a FLAC that states no length cannot be sought."""

    def seekable(self) -> bool:
        return False


def decode(path: str | os.PathLike, any_form: bool = False) -> Sound:
    """Decode a file; with `any_form` it may have another rate than 16 kHz and several channels."""
    blocks = list(_blocks(path, any_form))
    return replace(blocks[0], samples=np.concatenate([block.samples for block in blocks]))


def _blocks(path: str | os.PathLike, any_form: bool) -> Iterator[Sound]:
    """A file's samples block by block, so that memory does not grow with its length; the first block is empty and tells its form."""
    found = 0
    try:
        with _Sequential(source_of(path)) as file:
            unchecked = None if file.format in _CHECKED_FORMATS else file.format_info
            if not any_form:
                _refuse_other_forms(path, file)
            expected = left = file.frames
            empty = np.empty(0 if file.channels == 1 else (0, file.channels), np.float32)
            yield Sound(empty, file.samplerate, file.subtype, unchecked)
            while left:  # never more than stated: tags may follow the samples
                samples = file.read(min(left, _BLOCK), dtype="float32")
                left = left - len(samples) if len(samples) == _BLOCK else 0
                _check_finite(path, samples, file.samplerate, found)
                found += len(samples)
                yield Sound(samples, file.samplerate, file.subtype, unchecked)
    except AudioFault:
        raise
    except UserError as error:
        raise AudioFault("damaged recording", str(error)) from None
    except Exception as error:  # of any library: the person needs the file's name
        if not os.path.exists(path):
            raise AudioFault(
                "missing recording", f"{path}: no such audio file: mend the path or put the file there"
            ) from None
        reason = getattr(error, "error_string", None) or getattr(error, "strerror", None) or error
        raise AudioFault(
            "damaged recording", f"{path}: cannot be decoded ({str(reason).strip().rstrip('.')}): {COPY_AGAIN}"
        ) from None
    if expected not in (found, _UNSTATED):
        raise AudioFault(
            "damaged recording", f"{path}: {found} samples decoded, {expected} in its header: {COPY_AGAIN}"
        )


def mono_blocks(path: str | os.PathLike, resample: bool = False) -> Iterator[np.ndarray]:
    """Samples of a file of any length at 16 kHz, float32, shape (n,) each, joined the same as `resampled` gives them.

    Without `resample`, another rate or more channels are refused. A fault that shows only at the file's end, such as a
    length other than its header's, is raised there: use nothing of a file before its last block has come.
    """
    blocks = _blocks(path, resample)
    rate = next(blocks).rate
    mixed = (resampled(replace(block, rate=SAMPLE_RATE)) for block in blocks)
    yield from mixed if rate == SAMPLE_RATE else _resampled_blocks(mixed, rate)


def _resampled_blocks(blocks: Iterable[np.ndarray], rate: int) -> Iterator[np.ndarray]:
    """Each block resampled with as much sound on either side as the filter reads, so that no seam is heard or seen."""
    step = rate // math.gcd(rate, SAMPLE_RATE)  # so many samples in are a whole number of samples out
    out = SAMPLE_RATE * step // rate
    reach = math.ceil(_RESAMPLER["lowpass_filter_width"] * step / (min(step, out) * _RESAMPLER["rolloff"]))
    context = step * (-(-reach // step) + 1)
    held, before = np.empty(0, np.float32), 0  # `before` samples of `held` have been given out and are context
    for block in blocks:
        held = np.concatenate([held, block])
        ready = (len(held) - before - context) // step * step
        if ready > 0:
            found = resampled(Sound(held[: before + ready + context], rate, ""))
            yield found[before // step * out : (before + ready) // step * out]
            held, before = held[max(0, before + ready - context) :], min(context, before + ready)
    yield resampled(Sound(held, rate, ""))[before // step * out :]


def _refuse_other_forms(path: str | os.PathLike, file: soundfile.SoundFile) -> None:
    if file.samplerate != SAMPLE_RATE:
        raise AudioFault(
            "another sample rate",
            f"{path}: the sample rate is {file.samplerate} Hz: resample it to {SAMPLE_RATE} Hz (sox IN -r 16k OUT), or set "
            "corpus.resample: true (on the command line: --resample)",
        )
    if file.channels != 1:
        raise AudioFault(
            "several channels",
            f"{path}: it has {file.channels} channels: mix it down to one (sox IN -c 1 OUT), or set corpus.resample: true "
            "(on the command line: --resample)",
        )


def resampled(sound: Sound) -> np.ndarray:
    """The mean of a sound's channels at 16 kHz, float32: band-limited resampling by torchaudio."""
    samples = sound.samples if sound.samples.ndim == 1 else sound.samples.mean(axis=1, dtype=np.float32)
    if sound.rate == SAMPLE_RATE or not len(samples):
        return samples
    import torch
    from torchaudio.functional import resample

    return resample(torch.from_numpy(samples), sound.rate, SAMPLE_RATE, **_RESAMPLER).numpy()


def resampler() -> str:
    """What `resampled` is done with, for the record of a prepared split."""
    from importlib import metadata

    return f"torchaudio {metadata.version('torchaudio')}, " + ", ".join(f"{k} {v}" for k, v in _RESAMPLER.items())


def as_pcm16(samples: np.ndarray) -> np.ndarray:
    """Samples in [-1, 1) as 16-bit integers; what lies outside is clipped."""
    return np.clip(np.round(samples * 32768), -32768, 32767).astype(np.int16)


def _check_finite(path: str | os.PathLike, samples: np.ndarray, rate: int, before: int) -> None:
    """Refuse a sample that is no sound; `before` samples of the file came before these."""
    sound = np.abs(samples) <= _LARGEST  # False for NaN too
    if sound.all():
        return
    first = int(sound.argmin())
    moment = before + first // (samples.shape[1] if samples.ndim == 2 else 1)
    raise AudioFault(
        "sample that is no number",
        f"{path}: sample {moment} (at {moment / rate:.4f} s) is {samples.flat[first]}: "
        "export the recording again, with finite samples",
    )


def _integer_md5(samples: np.ndarray, subtype: str) -> str | None:
    """MD5 of float32 samples as the integers of a FLAC file of up to 24 bits; None for another form.

    float32 has 24 bits of mantissa: the integers come back exactly.
    """
    bits = {"PCM_S8": 8, "PCM_16": 16, "PCM_24": 24}.get(subtype)
    if bits is None:
        return None
    integers = np.round(samples * np.float32(1 << (bits - 1))).astype("<i4")
    packed = integers.view(np.uint8).reshape(-1, 4)[:, : bits // 8]
    return hashlib.md5(packed.tobytes(), usedforsecurity=False).hexdigest()


def _flac_md5(path: str | os.PathLike) -> str | None:
    """MD5 of the decoded samples as a FLAC's STREAMINFO states it (RFC 9639, 8.2), None where there is none.

    Only for 8, 16 and 24 bits: libsndfile reads other widths as the next larger one of these.
    """
    with open(path, "rb") as file:
        head = file.read(42)
    if head[:4] != b"fLaC" or len(head) < 42:
        return None
    bits_per_sample = ((int.from_bytes(head[20:22], "big") >> 4) & 31) + 1
    return head[26:42].hex() if bits_per_sample in (8, 16, 24) and any(head[26:42]) else None


def perturb_speed(waveform: torch.Tensor, factor: float) -> torch.Tensor:
    """Play (..., samples) `factor` times as fast, pitch and tempo together, as `sox speed` and ESPnet's recipes do.

    Band-limited resampling by torchaudio; the result has `perturbed_samples(samples, factor)` samples.
    """
    if factor == 1.0:
        return waveform
    import torch
    from torchaudio.functional import resample

    fraction = speed_fraction(factor)
    changed = resample(waveform, fraction.numerator, fraction.denominator)
    # torchaudio reckons the length in float32: from some minutes on it may be a sample short
    missing = perturbed_samples(waveform.shape[-1], factor) - changed.shape[-1]
    return torch.nn.functional.pad(changed, (0, missing)) if missing else changed
