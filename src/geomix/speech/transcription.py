"""A recording of any length to words with times: overlapping windows, joined where their paths agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from geomix.errors import UserError
from geomix.speech.alignment import Label, Path, Word, joined, meeting, words_of
from geomix.speech.decoding import log_prob_batches
from geomix.speech.features import HOP, log_mel
from geomix.speech.manifest import SAMPLE_RATE, SAMPLES_WITHOUT_FRAME

if TYPE_CHECKING:
    import torch
    from torch import nn

    from geomix.speech.tokenizer import Tokenizer

OVERLAP = 0.2
"""Share of a window that the next one hears again."""
_CONTEXT = 2
"""Frames of sound on either side of a window that its own frames reach into: 2 x 160 samples hold half a transform, 256."""


@dataclass(frozen=True)
class Transcript:
    """What a recording says; `name` is its file, `seconds` its length."""

    name: str
    seconds: float
    words: tuple[Word, ...]
    windows: int = 1

    @property
    def text(self) -> str:
        """The words with single spaces."""
        return " ".join(word.text for word in self.words)


class Windows:
    """Log-mel features of a recording in windows: iterate for (first frame, features (frames, 80)).

    Features are those of the whole recording; only what a window needs is kept. `samples` counts what has been read.

    length, step : frames of a window, and from one window's begin to the next one's
    """

    def __init__(self, blocks: Iterable[np.ndarray], length: int, step: int):
        self._blocks, self._length, self._step = iter(blocks), length, step
        self._held, self._first = np.empty(0, np.float32), 0
        self.samples = 0

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        start = 0
        while True:
            end = start + self._length
            more = self._read(HOP * (end + _CONTEXT - 1))
            first = max(0, start - _CONTEXT)
            self._held, self._first = self._held[HOP * first - self._first :], HOP * first
            if self.samples <= SAMPLES_WITHOUT_FRAME:
                held = f"holds {self.samples} samples, too short for the model" if self.samples else "is empty"
                raise UserError(f"{held}: give a longer recording, at least {SAMPLES_WITHOUT_FRAME + 1} samples")
            features = log_mel(self._held[: HOP * (end + _CONTEXT - 1 - first)])
            yield start, features[start - first :][: self._length]
            if not more and self.samples < HOP * end:  # the recording has no frame `end`
                return
            start += self._step

    def _read(self, until: int) -> bool:
        """Hold the samples up to `until`; False when the recording ends before."""
        parts = [self._held]
        while self.samples < until:
            block = next(self._blocks, None)
            if block is None:
                break
            parts.append(block)
            self.samples += len(block)
        self._held = np.concatenate(parts) if len(parts) > 1 else self._held
        return self.samples >= until


def transcribe(
    model: nn.Module,
    tokenizer: Tokenizer,
    name: str,
    blocks: Iterable[np.ndarray],
    *,
    max_seconds: float = 30.0,
    device: torch.device,
) -> Transcript:
    """Greedy transcript of the samples of `blocks` (float32 at 16 kHz, (n,) each), with times of its words.

    max_seconds : longest window, 1 at least; what is not longer is decoded whole

    Memory is that of one window, whatever the recording's length.

    Raises
    ------
    UserError
        When the recording is empty, too short for one output frame or has no finite features; it names the recording.
    """
    subsampling = model.config.subsampling
    length, overlap = (int(100 * s) // subsampling * subsampling for s in (max_seconds, OVERLAP * max_seconds))
    windows = Windows(blocks, length, length - overlap)
    labels: list[Label] = []
    pending, count = None, 0
    try:
        for first, features in windows:
            if int(model.subsampled_lengths(len(features))) < 1:
                raise UserError("is shorter than one output frame of the model: give a longer recording")
            ((_, log_probs, lengths),) = log_prob_batches(model, {name: features}, [name], device=device)
            path = Path.of(log_probs[0, : int(lengths[0])], first // subsampling)
            if pending is not None:
                seam = meeting(pending, path)
                labels = joined(labels, pending.between(pending.start, seam).labels())
                path = path.between(seam, path.end)
            pending, count = path, count + 1
    except UserError as error:
        raise UserError(str(error) if f"{name}:" in str(error) else f"{name}: {error}") from None
    labels = joined(labels, pending.labels())
    seconds = windows.samples / SAMPLE_RATE
    return Transcript(name, seconds, tuple(words_of(labels, tokenizer, subsampling, seconds)), count)
