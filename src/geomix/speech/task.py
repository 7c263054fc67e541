"""Speech recognition with CTC as something to train: batches of padded features and tokens, and error rates on dev."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional as F

from geomix.errors import UserError
from geomix.models.conformer import ConformerCTC
from geomix.speech.augmentation import SpecAugment
from geomix.speech.batching import (
    Example,
    FrameSource,
    numel_batches,
    pad_tokens,
    padding_share,
    shuffled,
    split_alignable,
)
from geomix.speech.decoding import greedy_labels, log_prob_batches
from geomix.speech.features import FeatureStore, open_features
from geomix.speech.manifest import SAMPLE_RATE, Utterance, read_manifest
from geomix.speech.prepared import PreparedData
from geomix.speech.scoring import score_texts
from geomix.speech.tokenizer import Tokenizer
from geomix.training.progress import say
from geomix.training.seeding import generator
from geomix.training.task import Batch


def collate(
    source: FrameSource,
    examples: Sequence[Example],
    augmentation: SpecAugment | None = None,
    randomness: torch.Generator | None = None,
) -> Batch:
    """Examples as one padded batch on the source's device, augmented when asked."""
    lengths = [example.frames for example in examples]
    features = source.batch([example.id for example in examples], lengths)
    frames = torch.tensor(lengths)
    if augmentation is not None:
        features = augmentation(features, frames, randomness)
    tokens, token_lengths = pad_tokens([example.tokens for example in examples])
    inputs = {"lengths": frames, "tokens": tokens, "token_lengths": token_lengths}
    inputs = {name: tensor.to(source.device, non_blocking=True) for name, tensor in inputs.items()}
    return Batch({"features": features, **inputs}, sum(example.samples for example in examples) / SAMPLE_RATE)


class _Epoch(Sequence[Batch]):
    """The batches of one epoch, each made when asked for."""

    def __init__(self, task: SpeechTask, epoch: int):
        self._task, self._epoch = task, epoch
        self._order = shuffled(task.plan, task.seed, epoch)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> Batch:
        task = self._task
        return collate(
            task.source, self._order[index], task.augmentation, generator(task.seed, "augment", self._epoch, index)
        )


def _check_features(files: Sequence[Path], store: FeatureStore, utterances: Sequence[Utterance]) -> None:
    """Refuse features that lack an utterance, before anything is trained."""
    if missing := [u.id for u in utterances if u.id not in store]:
        raise UserError(
            f"{files[0]}: no features of {len(missing)} of {len(utterances)} utterances (first: {missing[0]}): compute them again"
        )


class SpeechTask:
    """Batches and dev error rates of CTC speech recognition (a `training.task.Task`).

    plan : the training batches, longest utterance last; dropped : ids that CTC cannot align, which are left out.
    floor : mean dev loss of the best distribution over labels that is the same at every frame.
    """

    unit = "audio_s"
    smaller_batches = "lower training.batch_bins and raise training.accumulation in proportion"

    def __init__(
        self,
        model: ConformerCTC,
        data: PreparedData,
        *,
        batch_bins: int,
        augmentation: SpecAugment,
        seed: int,
        device: torch.device,
        flops_per_audio_second: float,
    ):
        self.seed, self.augmentation, self._device = seed, augmentation, device
        self.flops_per_unit = flops_per_audio_second
        self.tokenizer = Tokenizer.load(data.tokenizer)
        store = open_features(data.train_features)
        utterances = read_manifest(data.train_manifest)
        lengths = store.lengths
        _check_features(data.train_features, store, utterances)
        encoded = {text: tuple(self.tokenizer.encode(text)) for text in {u.text for u in utterances}}
        examples = [Example(u.id, u.samples, lengths[u.id], encoded[u.text]) for u in utterances]
        kept, dropped = split_alignable(
            examples, functools.cache(lambda frames: int(model.subsampled_lengths(torch.tensor([frames]))[0]))
        )
        self.dropped = sorted(example.id for example in dropped)
        if dropped:
            say(f"{len(dropped)} utterances are too short for their transcripts and left out: {' '.join(self.dropped)}")
        self.source = FrameSource(store, [example.id for example in kept], device)
        self.plan = numel_batches(kept, self.tokenizer.size, batch_bins)
        self.padding = padding_share(self.plan)
        self.train_seconds = sum(example.samples for example in kept) / SAMPLE_RATE
        self._unigrams = Counter(token for example in kept for token in example.tokens)
        self._read_dev(model, data)

    def _read_dev(self, model: ConformerCTC, data: PreparedData) -> None:
        self.dev_store = open_features(data.dev_features)
        dev = [utterance for manifest in data.dev_manifests for utterance in read_manifest(manifest)]
        _check_features(data.dev_features, self.dev_store, dev)
        self._references = {utterance.id: utterance.text for utterance in dev}
        self._dev_tokens = {utterance.id: self.tokenizer.encode(utterance.text) for utterance in dev}
        self._subsampled = model.subsampled_lengths
        self.unknown_words = self.tokenizer.unknown_words(self._references.values())
        if self.unknown_words:
            words = ", ".join(sorted(self.unknown_words)[:10])
            say(
                f"{len(self.unknown_words)} words of the dev references cannot be spelt by the tokenizer, and count as errors: {words}"
            )

    @property
    def size(self) -> str:
        """The training data in words."""
        return f"{self.train_seconds:,.0f} audio-s in {len(self.plan):,} batches an epoch, {100 * self.padding:.1f} % padding"

    def batches(self, epoch: int) -> Sequence[Batch]:
        """Batches of an epoch: whole batches shuffled by (seed, epoch), SpecAugment by (seed, epoch, position)."""
        return _Epoch(self, epoch)

    def largest(self) -> Sequence[Batch]:
        """The batches of most padded frames, of the longest utterance, and of the largest attention (n utterances of T frames: n T^2)."""
        found = [
            max(self.plan, key=lambda batch: len(batch) * batch[0].frames),
            self.plan[-1],
            max(self.plan, key=lambda batch: len(batch) * batch[0].frames ** 2),
        ]
        return [collate(self.source, batch) for n, batch in enumerate(found) if all(batch is not b for b in found[:n])]

    def describe(self, batch: Batch) -> str:
        """Size of a batch in words."""
        utterances, frames, _ = batch.inputs["features"].shape
        return f"{utterances} utterances of up to {frames / 100:.1f} s"

    def evaluate(self, model: ConformerCTC) -> dict[str, float]:
        """Mean CTC loss of the dev utterances, CER and WER (%) of their greedy decoding, share of blank frames."""
        texts: dict[str, str] = {}
        loss, blanks, frames = 0.0, 0, 0
        for ids, log_probs, lengths in log_prob_batches(
            model, self.dev_store, sorted(self._references), device=self._device
        ):
            tokens, token_lengths = pad_tokens([self._dev_tokens[i] for i in ids])
            losses = _ctc(log_probs.cpu(), tokens, lengths.cpu(), token_lengths)
            loss += float(losses.double().sum())
            labels, blank = greedy_labels(log_probs, lengths)
            blanks, frames = blanks + blank, frames + int(lengths.sum())
            texts |= {i: self.tokenizer.decode(found) for i, found in zip(ids, labels, strict=True)}
        score = score_texts(self._references, texts, hypothesis_name="the dev hypotheses")
        return {
            "dev_loss": loss / len(texts),
            "dev_cer": score.characters.rate,
            "dev_wer": score.words.rate,
            "blank_share": blanks / max(frames, 1),
        }

    @functools.cached_property
    def floor(self) -> float:
        frames = self.dev_store.lengths
        total = sum(self._unigrams.values())
        floors = []
        for blank in (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96):
            loss = 0.0
            for i, tokens in self._dev_tokens.items():
                # only the labels that occur matter: column 0 is blank, the others this utterance's own
                own = sorted(set(tokens))
                # a label never seen in training gets the share of one occurrence
                probabilities = [blank, *((1 - blank) * max(self._unigrams[t], 1) / total for t in own)]
                length = self._subsampled(torch.tensor([frames[i]]))
                # an utterance without an output frame cannot be aligned, and PyTorch takes no empty tensor
                log_probs = torch.tensor(probabilities).log().expand(1, max(int(length), 1), -1)
                targets, target_lengths = pad_tokens([[1 + own.index(t) for t in tokens]])
                loss += float(_ctc(log_probs, targets, length, target_lengths)[0])
            floors.append(loss / len(self._dev_tokens))
        return min(floors)


def _ctc(
    log_probs: torch.Tensor, tokens: torch.Tensor, lengths: torch.Tensor, token_lengths: torch.Tensor
) -> torch.Tensor:
    """CTC loss of each utterance, 0 where it cannot be aligned; log_probs (B, T, V)."""
    return F.ctc_loss(
        log_probs.float().transpose(0, 1), tokens, lengths, token_lengths, reduction="none", zero_infinity=True
    )
