"""Input features of Granite Speech: log-mel frames, two of them stacked, and the counts that follow from a length.

Same arithmetic as GraniteSpeechFeatureExtractor of transformers 4.57.1 (which calls torchaudio's MelSpectrogram), per
recording: the original pads the waveforms of a batch before the STFT, which changes the last frame of the shorter ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from geomix.algebra.constants import constant
from geomix.errors import UserError

SAMPLE_RATE = 16_000  # Hz
FFT, WINDOW, HOP, MELS = 512, 400, 160, 80  # samples, samples, samples, bands
MIN_SAMPLES = FFT // 2 + 1  # the reflected edge needs more than half a transform


@constant
def mel_filterbank() -> Tensor:
    """(FFT // 2 + 1, MELS) triangular filters, HTK mel scale, 0 to 8000 Hz, peaks of one."""
    frequencies = torch.linspace(0, SAMPLE_RATE // 2, FFT // 2 + 1, dtype=torch.float32, device="cpu")
    top = 2595.0 * math.log10(1.0 + SAMPLE_RATE / 2 / 700.0)
    edges = 700.0 * (10.0 ** (torch.linspace(0, top, MELS + 2, dtype=torch.float32, device="cpu") / 2595.0) - 1.0)
    widths = edges[1:] - edges[:-1]
    slopes = edges[None, :] - frequencies[:, None]
    return torch.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]).clamp(min=0)


def log_mel(waveform: Tensor) -> Tensor:
    """(..., samples) at 16 kHz in [-1, 1] -> (..., samples // 160 + 1, 80): log10 power, floored 8 below the recording's maximum, / 4 + 1.

    Raises UserError for fewer than 257 samples (16 ms): the STFT's reflected edge needs them.
    """
    if waveform.shape[-1] < MIN_SAMPLES:
        raise UserError(
            f"a recording of {waveform.shape[-1]} samples is too short for Granite's features: give at least "
            f"{MIN_SAMPLES} samples at {SAMPLE_RATE} Hz or drop it"
        )
    waveform = waveform.float()
    window = torch.hann_window(WINDOW, device=waveform.device)
    spectrum = torch.stft(
        waveform, FFT, HOP, WINDOW, window, center=True, pad_mode="reflect", normalized=False, return_complex=True
    )
    mel = spectrum.abs().pow(2.0).transpose(-1, -2) @ mel_filterbank().to(waveform.device)
    log = mel.clamp(min=1e-10).log10()
    return torch.maximum(log, log.amax(dim=(-2, -1), keepdim=True) - 8.0) / 4 + 1


def stack_frames(frames: Tensor) -> Tensor:
    """(..., F, bands) -> (..., F // 2, 2 * bands): frames 2i and 2i+1 side by side; an odd last frame is dropped."""
    even = frames.shape[-2] // 2 * 2
    return frames[..., :even, :].reshape(*frames.shape[:-2], even // 2, 2 * frames.shape[-1])


def input_features(waveform: Tensor) -> Tensor:
    """One recording (samples,) or equally long ones (batch, samples) -> encoder input (..., T, 160), fp32."""
    return stack_frames(log_mel(waveform))


def encoder_frames(samples: int) -> int:
    """Encoder frames (20 ms each) of a recording."""
    return (samples // HOP + 1) // 2


def batch_features(waveforms: Sequence[Tensor], *, masked: bool = True) -> tuple[Tensor, Tensor]:
    """Waveforms (samples,) of any lengths -> features (batch, T, 160), zero beyond each length, and lengths (batch,).

    `masked=False` pads the waveforms before the STFT, as the original does; then padding holds the log floor, not zero.
    """
    lengths = torch.tensor([encoder_frames(len(waveform)) for waveform in waveforms])
    if masked:
        features = [input_features(waveform) for waveform in waveforms]
        return torch.nn.utils.rnn.pad_sequence(features, batch_first=True), lengths
    return input_features(torch.nn.utils.rnn.pad_sequence(list(waveforms), batch_first=True)), lengths
