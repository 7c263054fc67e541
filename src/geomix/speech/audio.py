"""Reading audio: mono, 16 kHz, whole; anything else ends in one sentence."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import numpy as np
import soundfile

from geomix.errors import UserError
from geomix.speech.manifest import SAMPLE_RATE, perturbed_samples, speed_fraction

if TYPE_CHECKING:
    import torch


def read_audio(path: str | os.PathLike) -> np.ndarray:
    """All samples of a mono 16 kHz file as float32 in [-1, 1), shape (samples,)."""
    return _decode(path, "float32")


def inspect_audio(path: str | os.PathLike) -> tuple[int, str]:
    """Decode a file fully and return its number of samples and the MD5 of its 16-bit samples.

    A FLAC file carries both in its header (STREAMINFO); what was decoded must agree with it, so that a truncated or
    damaged file is found here and not in the middle of a training.
    """
    samples = _decode(path, "int16")
    digest = hashlib.md5(samples.astype("<i2", copy=False).tobytes(), usedforsecurity=False).hexdigest()
    stored = _flac_md5(path)
    if stored is not None and stored != digest:
        raise UserError(f"{path}: the decoded samples do not have the MD5 {stored} of its header: {_COPY_AGAIN}")
    return len(samples), digest


_COPY_AGAIN = "the file is damaged, copy it again from its source"


def _decode(path: str | os.PathLike, dtype: str) -> np.ndarray:
    try:
        with soundfile.SoundFile(path) as file:
            if file.samplerate != SAMPLE_RATE:
                raise UserError(
                    f"{path}: the sample rate is {file.samplerate} Hz: resample it to {SAMPLE_RATE} Hz (sox IN -r 16k OUT)"
                )
            if file.channels != 1:
                raise UserError(f"{path}: it has {file.channels} channels: mix it down to one (sox IN -c 1 OUT)")
            expected, samples = file.frames, file.read(dtype=dtype)
    except (soundfile.SoundFileError, OSError) as error:
        if not os.path.exists(path):
            raise UserError(f"{path}: no such audio file: mend the path or put the file there") from None
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        raise UserError(f"{path}: cannot be decoded ({reason}): {_COPY_AGAIN}") from None
    if len(samples) != expected:
        raise UserError(f"{path}: {len(samples)} samples decoded, {expected} in its header: {_COPY_AGAIN}")
    return samples


def _flac_md5(path: str | os.PathLike) -> str | None:
    """MD5 of the decoded samples as a 16-bit FLAC's STREAMINFO states it (RFC 9639, 8.2), None where there is none."""
    with open(path, "rb") as file:
        head = file.read(42)
    if head[:4] != b"fLaC" or len(head) < 42:
        return None
    bits_per_sample = ((int.from_bytes(head[20:22], "big") >> 4) & 31) + 1
    return head[26:42].hex() if bits_per_sample == 16 and any(head[26:42]) else None


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
