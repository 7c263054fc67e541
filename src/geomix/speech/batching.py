"""Training batches of about equal cost, as ESPnet's `numel` batch type makes them.

Source: https://github.com/espnet/espnet/blob/master/espnet2/samplers/num_elements_batch_sampler.py and
espnet2/iterators/sequence_iter_factory.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from geomix.errors import UserError


@dataclass(frozen=True)
class Example:
    """An utterance as training sees it: `samples` of audio (for the size of batches), feature `frames`, token ids."""

    id: str
    samples: int
    frames: int
    tokens: tuple[int, ...]


def ctc_frames_needed(tokens: Sequence[int]) -> int:
    """Encoder frames that CTC needs for `tokens`: one each, and a blank between two equal ones."""
    return len(tokens) + sum(a == b for a, b in zip(tokens, tokens[1:], strict=False))


def split_alignable(
    examples: Iterable[Example], subsampled: Callable[[int], int]
) -> tuple[list[Example], list[Example]]:
    """Examples that CTC can align, and those it cannot: fewer encoder frames than tokens and repeats, an infinite loss.

    `subsampled` maps feature frames to encoder frames.
    """
    kept, dropped = [], []
    for example in examples:
        fits = subsampled(example.frames) >= max(1, ctc_frames_needed(example.tokens))
        (kept if fits else dropped).append(example)
    return kept, dropped


def numel_batches(examples: Sequence[Example], vocabulary: int, batch_bins: int) -> list[list[Example]]:
    """Cut the examples, sorted by samples, into batches of just over `batch_bins` elements, longest utterance first.

    A batch of n utterances counts n x (samples + tokens x `vocabulary`) of its last utterance, that of the longest audio, as
    ESPnet's sampler does: not of the longest text. Its shape files give audio in samples and text as (tokens, vocabulary). A
    batch is closed by the utterance that brings it over the bound.
    """
    batches: list[list[Example]] = []
    current: list[Example] = []
    for example in sorted(examples, key=lambda e: (e.samples, e.id)):
        current.append(example)
        if len(current) * (example.samples + len(example.tokens) * vocabulary) > batch_bins:
            batches.append(current[::-1])
            current = []
    if current:
        batches.append(current[::-1])
    return batches


def shuffled(batches: Sequence[list[Example]], seed: int, epoch: int) -> list[list[Example]]:
    """Whole batches in the order of one epoch, drawn as ESPnet draws it: `RandomState(epoch + seed).shuffle`."""
    order = np.arange(len(batches))
    np.random.RandomState(epoch + seed).shuffle(order)
    return [batches[i] for i in order]


def padding_share(batches: Iterable[Sequence[Example]]) -> float:
    """Share of feature frames in the batches that is padding."""
    real = padded = 0
    for batch in batches:
        real += sum(e.frames for e in batch)
        padded += len(batch) * max(e.frames for e in batch)
    return 1 - real / padded if padded else 0.0


class FrameSource:
    """Padded feature batches from a mapping id -> (frames, bands), read on the host or held in device memory.

    With `resident` true all wanted utterances are copied to the device once (80 bands of float16: 16 kB a second, 17.5
    GB for the 304 hours of LibriSpeech-100 at three speeds) and a batch is one gather; otherwise each batch is read
    from the memory-mapped files and sent over.
    """

    def __init__(
        self, store: Mapping[str, np.ndarray], ids: Sequence[str], device: torch.device, resident: bool | None = None
    ):
        self._store, self.device = store, device
        if not ids:
            raise UserError("no utterance is left to train on: check the manifest and the bounds of utterance length")
        first = store[ids[0]]
        self._bands = first.shape[1]
        if resident is None:  # a third of what is free leaves the rest to the model
            frames = sum(len(store[i]) for i in ids) if device.type == "cuda" else 0
            resident = (
                device.type == "cuda" and 3 * frames * self._bands * first.itemsize < torch.cuda.mem_get_info(device)[0]
            )
        self._starts: dict[str, int] | None = None
        if resident:
            self._starts, total = {}, 0
            for i in ids:
                self._starts[i] = total
                total += len(store[i])
            self._frames = torch.empty(
                total, self._bands, dtype=torch.from_numpy(np.array(first[:0])).dtype, device=device
            )
            for i in ids:
                start = self._starts[i]
                self._frames[start : start + len(store[i])] = torch.from_numpy(np.array(store[i])).to(device)

    def batch(self, ids: Sequence[str], lengths: Sequence[int]) -> torch.Tensor:
        """Features (B, longest, bands) float32 on the device, zeros beyond each length."""
        longest = max(lengths)
        if self._starts is not None:
            starts = torch.tensor([self._starts[i] for i in ids]).to(self.device, non_blocking=True)
            limits = torch.tensor(lengths).to(self.device, non_blocking=True)
            frame = torch.arange(longest, device=self.device)[None]
            index = starts[:, None] + frame.minimum(limits[:, None] - 1)
            return self._frames[index].float().masked_fill_((frame >= limits[:, None])[..., None], 0.0)
        features = torch.zeros(len(ids), longest, self._bands, pin_memory=self.device.type == "cuda")
        host = features.numpy()
        for row, (i, length) in enumerate(zip(ids, lengths, strict=True)):
            host[row, :length] = self._store[i][:length]
        return features.to(self.device, non_blocking=True)


def pad_tokens(tokens: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token lists -> (B, longest) int64 padded with 0, and their lengths (B,)."""
    lengths = torch.tensor([len(t) for t in tokens])
    padded = torch.zeros(len(tokens), int(lengths.max()), dtype=torch.long)
    for row, ids in enumerate(tokens):
        padded[row, : len(ids)] = torch.tensor(ids, dtype=torch.long)
    return padded, lengths
