"""Reading audio: mono, 16 kHz, whole, finite; anything else ends in one sentence."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import numpy as np
import soundfile

from geomix.errors import UserError
from geomix.speech.audio_headers import COPY_AGAIN, source_of
from geomix.speech.manifest import SAMPLE_RATE, perturbed_samples, speed_fraction

if TYPE_CHECKING:
    import torch

# the formats whose stated length is compared with their content, here or by their decoder
_FORMATS = ("WAV", "WAVEX", "RF64", "AIFF", "AU", "CAF", "W64", "NIST", "FLAC", "OGG", "MP3", "MPEG")
_UNSTATED = 2**63 - 1  # libsndfile's number of samples for a FLAC that does not state it
_LARGEST = 2.0**31
"""Samples beyond this (full scale is 1, that of 32-bit integers 2**31) are no sound: their power would overflow."""
_BLOCK = 1 << 20


def read_audio(path: str | os.PathLike) -> np.ndarray:
    """All samples of a mono 16 kHz file as float32, in [-1, 1) but for files of floating point, shape (samples,).

    Raises
    ------
    UserError
        For a file that cannot be decoded, holds less than its header states, has another rate or more channels, or a
        sample that is not finite.
    """
    return _decode(path)[0]


def inspect_audio(path: str | os.PathLike) -> tuple[int, str]:
    """Decode a file fully and return its number of samples and the SHA-256 of the samples that `read_audio` gives.

    What was decoded must have the length that the header states and, in a FLAC file, the MD5 there (STREAMINFO), so
    that a truncated or damaged file is found here and not in the middle of a training.
    """
    samples, subtype = _decode(path)
    stored = _flac_md5(path)
    if stored is not None and _integer_md5(samples, subtype) not in (None, stored):
        raise UserError(f"{path}: the decoded samples do not have the MD5 {stored} of its header: {COPY_AGAIN}")
    return len(samples), hashlib.sha256(samples.astype("<f4", copy=False).tobytes()).hexdigest()


class _Sequential(soundfile.SoundFile):
    """A file that is read to its end and never sought in: the end of a FLAC that states no length cannot be sought."""

    def seekable(self) -> bool:
        return False


def _decode(path: str | os.PathLike) -> tuple[np.ndarray, str]:
    """Samples (float32) and libsndfile's name of their form in the file (PCM_16, ...)."""
    try:
        with _Sequential(source_of(path)) as file:
            if file.format not in _FORMATS:
                raise UserError(f"{path}: a {file.format_info} file, whose length is not checked: convert it to FLAC")
            if file.samplerate != SAMPLE_RATE:
                raise UserError(
                    f"{path}: the sample rate is {file.samplerate} Hz: resample it to {SAMPLE_RATE} Hz (sox IN -r 16k OUT)"
                )
            if file.channels != 1:
                raise UserError(f"{path}: it has {file.channels} channels: mix it down to one (sox IN -c 1 OUT)")
            expected, subtype = file.frames, file.subtype
            blocks, left = [np.empty(0, np.float32)], expected  # never more than stated: tags may follow the samples
            while left:
                blocks.append(file.read(min(left, _BLOCK), dtype="float32"))
                left = left - len(blocks[-1]) if len(blocks[-1]) == _BLOCK else 0
    except UserError:
        raise
    except Exception as error:  # of any library: the person needs the file's name
        if not os.path.exists(path):
            raise UserError(f"{path}: no such audio file: mend the path or put the file there") from None
        reason = getattr(error, "error_string", None) or getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be decoded ({str(reason).strip().rstrip('.')}): {COPY_AGAIN}") from None
    samples = np.concatenate(blocks)
    if expected not in (len(samples), _UNSTATED):
        raise UserError(f"{path}: {len(samples)} samples decoded, {expected} in its header: {COPY_AGAIN}")
    _check_finite(path, samples)
    return samples, subtype


def _check_finite(path: str | os.PathLike, samples: np.ndarray) -> None:
    sound = np.abs(samples) <= _LARGEST  # False for NaN too
    if sound.all():
        return
    first = int(sound.argmin())
    raise UserError(
        f"{path}: sample {first} (at {first / SAMPLE_RATE:.4f} s) is {samples[first]}: "
        "export the recording again, with finite samples"
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
