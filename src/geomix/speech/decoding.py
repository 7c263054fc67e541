"""Greedy CTC decoding: one for the dev error rate in training, the evaluation sets and `geomix transcribe`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from geomix.files import write_text

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

BLANK = 0


def collapse(ids: Iterable[int]) -> list[int]:
    """CTC's map from a path to labels: runs of equal ids become one, then blanks (0) are dropped."""
    labels, previous = [], None
    for i in ids:
        if i != previous and i != BLANK:
            labels.append(i)
        previous = i
    return labels


def log_prob_batches(
    model: nn.Module,
    store: Mapping[str, np.ndarray],
    ids: Sequence[str],
    *,
    batch_seconds: float = 240.0,
    device: torch.device,
) -> Iterator[tuple[list[str], torch.Tensor, torch.Tensor]]:
    """The encoder over batches of about equal length: (ids, log-probs (B, T', V) float32, lengths (B,)) of each.

    batch_seconds : padded audio in a batch (100 frames a second); one utterance is always taken.
    No autocast is active: which label is largest depends on more digits than bf16 has.
    """
    import torch

    from geomix.speech.batching import FrameSource

    source = FrameSource(store, ids, device, resident=False)
    frames = {i: len(store[i]) for i in ids}
    batch: list[str] = []
    for i in [*sorted(ids, key=lambda i: (-frames[i], i)), None]:
        if batch and (i is None or (len(batch) + 1) * frames[batch[0]] > 100 * batch_seconds):
            lengths = [frames[b] for b in batch]
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                yield batch, *model.log_probs(source.batch(batch, lengths), torch.tensor(lengths, device=device))
            batch = []
        batch = [*batch, i] if i is not None else batch


def greedy_labels(log_probs: torch.Tensor, lengths: torch.Tensor) -> tuple[list[list[int]], int]:
    """Most probable label of each frame, collapsed, per utterance; and how many of the real frames were blank.

    log_probs : (B, T', V) float32; lengths : (B,), frames at and beyond a length are not looked at.
    """
    paths = [
        path[:length] for path, length in zip(log_probs.float().argmax(-1).tolist(), lengths.tolist(), strict=True)
    ]
    return [collapse(path) for path in paths], sum(path.count(BLANK) for path in paths)


def greedy_decode(
    model: nn.Module,
    store: Mapping[str, np.ndarray],
    tokenizer: Any,
    ids: Sequence[str] | None = None,
    *,
    batch_seconds: float = 240.0,
    device: torch.device,
) -> dict[str, str]:
    """Texts of the utterances `ids` (all of the store by default), by id, sorted. The model is in eval mode."""
    ids = list(store) if ids is None else list(ids)
    texts = {}
    for batch, log_probs, lengths in log_prob_batches(model, store, ids, batch_seconds=batch_seconds, device=device):
        for i, labels in zip(batch, greedy_labels(log_probs, lengths)[0], strict=True):
            texts[i] = tokenizer.decode(labels)
    return dict(sorted(texts.items()))


def write_hypotheses(path: str | os.PathLike, texts: Mapping[str, str]) -> None:
    """Write a Kaldi `text` file, sorted by id, whole or not at all; an empty hypothesis is the id alone."""
    write_text(path, "".join(f"{i} {texts[i]}".rstrip() + "\n" for i in sorted(texts)))
