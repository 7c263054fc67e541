"""Greedy CTC decoding: one for the dev error rate in training, the evaluation sets and `geomix transcribe`."""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomix.errors import UserError
from geomix.files import write_text

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from geomix.speech.tokenizer import Tokenizer

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

    Utterances too short for one output frame come last, in a batch of their own with lengths 0, and are warned of by id:
    greedy decoding finds no label in them, and CTC's loss cannot align them.

    batch_seconds : padded audio in a batch (100 frames a second); one utterance is always taken.
    No autocast is active: which label is largest depends on more digits than bf16 has.

    Raises
    ------
    UserError
        When a log-probability of a real frame is NaN, which would count as blank; it names the utterance.
    """
    import torch

    from geomix.speech.batching import FrameSource

    source = FrameSource(store, ids, device, resident=False)
    frames = {i: len(store[i]) for i in ids}
    outputs = model.subsampled_lengths(torch.tensor([frames[i] for i in ids])).tolist()
    short = [i for i, output in zip(ids, outputs, strict=True) if output < 1]
    for batch in _batches(frames, set(ids).difference(short), 100 * batch_seconds):
        lengths = [frames[i] for i in batch]
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            log_probs, found = model.log_probs(source.batch(batch, lengths), torch.tensor(lengths, device=device))
        _check_numbers(batch, log_probs, found)
        yield batch, log_probs, found
    if short:
        _warn_once(
            "too short for one output frame of the model, and therefore with an empty hypothesis: "
            f"{' '.join(sorted(short))}"
        )
        least = max(frames[i] for i in short)
        least = next(n for n in itertools.count(least) if int(model.subsampled_lengths(torch.tensor([n]))[0]) >= 1)
        # the model says how many labels there are and where it computes; none of this frame is read
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            padded = torch.zeros(1, least, store[short[0]].shape[1], device=device)
            log_probs, found = model.log_probs(padded, torch.tensor([least], device=device))
        yield short, log_probs.expand(len(short), -1, -1), torch.zeros_like(found).expand(len(short))


def _batches(frames: Mapping[str, int], ids: Iterable[str], limit: float) -> Iterator[list[str]]:
    """Ids by falling length in batches of at most `limit` padded frames, or of one utterance."""
    batch: list[str] = []
    for i in sorted(ids, key=lambda i: (-frames[i], i)):
        if batch and (len(batch) + 1) * frames[batch[0]] > limit:
            yield batch
            batch = []
        batch = [*batch, i]
    if batch:
        yield batch


def _check_numbers(ids: Sequence[str], log_probs: torch.Tensor, lengths: torch.Tensor) -> None:
    import torch

    real = torch.arange(log_probs.shape[1], device=log_probs.device)[None] < lengths.to(log_probs.device)[:, None]
    wrong = (log_probs.isnan().any(-1) & real).nonzero()
    if len(wrong):
        row, frame = wrong[0].tolist()
        raise UserError(
            f"utterance {ids[row]}: the model gives NaN at output frame {frame}: its weights or this utterance's "
            "features are not finite: look at the training's log and prepare the features again"
        )


@functools.cache
def _warn_once(sentence: str) -> None:
    """Print a warning once in a process: the dev set is decoded after every epoch."""
    print(f"geomix: warning: {sentence}", file=sys.stderr, flush=True)


def greedy_labels(log_probs: torch.Tensor, lengths: torch.Tensor) -> tuple[list[list[int]], int]:
    """Most probable label of each frame, collapsed, per utterance; and how many of the real frames were blank.

    log_probs : (B, T', V) float32; lengths : (B,), frames at and beyond a length are not looked at.

    Raises
    ------
    UserError
        When a real frame holds a NaN: the largest of its labels is none of them.
    """
    ids = (f"{row + 1} of the batch" for row in range(len(log_probs)))
    _check_numbers(list(ids), log_probs, lengths)
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


def load_recogniser(folder: str | os.PathLike, device: torch.device | str) -> tuple[nn.Module, Tokenizer]:
    """The model and the tokenizer of a model folder; a `UserError` for two that do not belong together."""
    from geomix.models.saved import load_model
    from geomix.speech.tokenizer import Tokenizer

    network, tokenizer = load_model(folder), Tokenizer.load(folder)
    if tokenizer.size != network.config.vocab:
        raise UserError(
            f"{folder}: tokens.txt has {tokenizer.size} tokens, the model {network.config.vocab}: put its own tokenizer there"
        )
    return network.to(device), tokenizer


def decode_set(
    model: Path,
    manifest: Path,
    features: Sequence[Path],
    out: Path,
    *,
    batch_seconds: float = 240.0,
    threads: int = 1,
    device: str = "auto",
    search: Callable[..., dict[str, str]] | None = None,
) -> None:
    """Decode a manifest with the model folder `model` into the Kaldi text `out`: complete and sorted, or not there.

    search : another search than `greedy_decode`, called as that is
    """
    import torch

    from geomix.speech.features import open_features
    from geomix.speech.manifest import read_manifest
    from geomix.training import devices

    torch.set_num_threads(threads)
    place = devices.choose_device(device)
    ids = [utterance.id for utterance in read_manifest(manifest)]
    store = open_features(features)
    if missing := [i for i in ids if i not in store]:
        raise UserError(
            f"{features[0]}: no features of {len(missing)} utterances of {manifest} (first: {missing[0]}): compute them again"
        )
    network, tokenizer = load_recogniser(model, place)
    write_hypotheses(
        out, (search or greedy_decode)(network, store, tokenizer, ids, batch_seconds=batch_seconds, device=place)
    )
