"""Speech recognition as something to train: what the workflow's train, average and decode rules call.

Settings are a plain dictionary of all that decides the weights, and nothing else:

    track, seed
    model         fields of `models.conformer.ConformerConfig` but `vocab` (the tokenizer's size) and `seed` (the run's)
    training      `batch_bins` (see `batching.numel_batches`) and fields of `training.loop.TrainingSettings`: epochs, max_updates,
                  accumulation, optimizer, learning_rate, weight_decay, schedule, warmup, clip, precision
    augmentation  fields of `speech.augmentation.SpecAugment`
    features      mels, dtype; not read here: the hashes of the data stand for them

What never changes a weight (which epochs are averaged, detectors, saves, threads, the device) is given beside them.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from geomix.errors import UserError
from geomix.files import atomic_path, read_object, sha256, write_json
from geomix.models.architectures import model_config
from geomix.models.conformer import ConformerConfig, ConformerCTC, load_model, save_model
from geomix.models.diagnostics import pair_diagnostics, watched_utterances
from geomix.models.flops import parameter_count, train_flops_per_audio_second
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
from geomix.speech.decoding import greedy_decode, greedy_labels, log_prob_batches, write_hypotheses
from geomix.speech.features import FeatureStore, read_normalisation
from geomix.speech.manifest import SAMPLE_RATE, read_manifest
from geomix.speech.scoring import score_texts
from geomix.speech.tokenizer import Tokenizer, copy_tokenizer
from geomix.tensors import load_state
from geomix.training import checkpoints, devices
from geomix.training.averaging import Epochs, Selection, average_weights, write_averaging
from geomix.training.loop import Batch, Trainer, TrainingSettings
from geomix.training.progress import LOG, say
from geomix.training.record import training_record
from geomix.training.seeding import generator, seed_all
from geomix.training.store import Request, User, opened, plain

BATCH_BINS = 16_000_000


@dataclass(frozen=True)
class PreparedData:
    """The prepared files that a training reads: summaries (split.json), features by their data files (.f32), the tokenizer by its folder."""

    train_summary: Path
    dev_summary: Path
    train_manifest: Path
    train_features: Sequence[Path]
    dev_manifests: Sequence[Path]
    dev_features: Sequence[Path]
    normalisation: Path
    tokenizer: Path

    @classmethod
    def of(cls, files: Any) -> PreparedData:
        """From an object with the workflow's inputs of a training as attributes; `dev_manifest` and `dev_features` are single files."""
        return cls(
            train_summary=Path(files.train_summary),
            dev_summary=Path(files.dev_summary),
            train_manifest=Path(files.train_manifest),
            train_features=[Path(path) for path in files.train_features],
            dev_manifests=[Path(files.dev_manifest)],
            dev_features=[Path(files.dev_features)],
            normalisation=Path(files.normalisation),
            tokenizer=Path(files.tokenizer).parent,
        )

    @functools.cached_property
    def train_about(self) -> dict[str, Any]:
        """The training split's summary, with all that a record says of it: read and checked before the training, not after."""
        found = read_object(self.train_summary, "hash", "utterances", "seconds", "speed_histogram", "dropped")
        lists = (
            (found["dropped"].get(key) for key in ("too_short", "too_long"))
            if isinstance(found["dropped"], dict)
            else [0]
        )
        if not all(isinstance(ids, list) for ids in lists):
            raise UserError(f"{self.train_summary}: does not list what was dropped: prepare the split again")
        return found

    @functools.cached_property
    def hashes(self) -> dict[str, str]:
        """Hashes of the splits read, of the normalisation and of the tokenizer: with the settings, all that matters."""
        return {
            "train": self.train_about["hash"],
            "dev": read_object(self.dev_summary, "hash")["hash"],
            "normalisation": sha256(self.normalisation),
            "tokenizer": sha256(Path(self.tokenizer) / "tokenizer.model"),
        }


def open_features(paths: Sequence[Path]) -> FeatureStore:
    """One store over feature files named with their suffix."""
    return FeatureStore.open(*(Path(path).with_suffix("") for path in paths))


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


class SpeechTask:
    """Batches and dev error rates of CTC speech recognition (a `training.loop.Task`).

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
        batch_bins: int = BATCH_BINS,
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
        if missing := [u.id for u in utterances if u.id not in lengths]:
            raise UserError(
                f"{data.train_features[0]}: no features of {len(missing)} utterances of {data.train_manifest} (first: "
                f"{missing[0]}): compute them again"
            )
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

        self.dev_store = open_features(data.dev_features)
        dev = [utterance for manifest in data.dev_manifests for utterance in read_manifest(manifest)]
        if missing := [u.id for u in dev if u.id not in self.dev_store]:
            raise UserError(
                f"{data.dev_features[0]}: no features of {len(missing)} utterances of dev (first: {missing[0]}): compute them again"
            )
        self._references = {utterance.id: utterance.text for utterance in dev}
        self._dev_tokens = {utterance.id: self.tokenizer.encode(utterance.text) for utterance in dev}
        self._subsampled = model.subsampled_lengths
        self.unknown_words = self.tokenizer.unknown_words(self._references.values())
        if self.unknown_words:
            words = ", ".join(sorted(self.unknown_words)[:10])
            say(
                f"{len(self.unknown_words)} words of the dev references cannot be spelt by the tokenizer, and count as errors: {words}"
            )

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


def build_model(
    settings: Mapping[str, Any], tokenizer: Tokenizer, normalisation: Path
) -> tuple[ConformerConfig, ConformerCTC]:
    """The untrained model of a run: initial weights depend on its seed and configuration alone."""
    values = {**settings["model"], "vocab": tokenizer.size}
    config = model_config(values if "architecture" in values else {**values, "seed": settings["seed"]})
    seed_all(settings["seed"], "initial weights")
    model = config.build()
    model.set_normalisation(*read_normalisation(normalisation))
    return config, model


def train_arm(
    settings: Mapping[str, Any],
    data: PreparedData,
    *,
    about: Mapping[str, Any],
    state_root: Path = Path("state"),
    out: Path,
    selection: Selection,
    detect_after: int | None,
    save_minutes: float = 10.0,
    log_every: int = 50,
    threads: int = 1,
    device: str = "auto",
) -> dict[str, Any]:
    """Train one arm to the end, or go on where it was interrupted, and write what the train rule declares.

    Parameters
    ----------
    about : what the record says of the run beside the settings: run, corpus, arm, gated, unmatched
    state_root : the store (`training.store`); the state folder below it is named by the hash of settings and data
    out : folder of record.json, log.jsonl, diagnostics.json and epochs.json ({"state", "epochs": {"1": {"dev_cer", "dev_wer",
        "dev_loss"}, ...}})
    selection : the epochs whose weights stay on disk while this training runs
    detect_after : updates after which a run that learns nothing is stopped; None: never
    device : auto (CUDA, MPS, CPU), or a name

    Returns
    -------
    The run record.
    """
    torch.set_num_threads(threads)
    devices.keep_freed_memory()
    place = devices.choose_device(device)
    out, arm, seed = Path(out), about["arm"], settings["seed"]
    training = dict(settings["training"])
    batch_bins = training.pop("batch_bins", BATCH_BINS)
    options = TrainingSettings.from_dict(
        {
            **training,
            **dataclasses.asdict(selection),
            "detect_after": detect_after,
            "save_minutes": save_minutes,
            "log_every": log_every,
        }
    )
    tokenizer = Tokenizer.load(data.tokenizer)
    config, model = build_model(settings, tokenizer, data.normalisation)
    task = SpeechTask(
        model,
        data,
        batch_bins=batch_bins,
        augmentation=SpecAugment(**settings["augmentation"]),
        seed=seed,
        device=place,
        flops_per_audio_second=train_flops_per_audio_second(config),
    )
    user = User(about["run"], settings["track"], arm, seed)
    say(
        f"{user.name}: {parameter_count(config):,} parameters, {task.train_seconds:,.0f} audio-s in {len(task.plan):,} batches an epoch, "
        f"{100 * task.padding:.1f} % padding, on {devices.device_name(place)}"
    )
    request = Request(settings, data.hashes, user, checkpoints.LAYOUT, selection, options.schedule)
    with opened(state_root, request) as found:
        state = found.folder
        identity = checkpoints.Identity(state.name, {**settings, "model": config.to_dict(), "hashes": data.hashes})
        trainer = Trainer(
            model, task, options, state_dir=state, identity=identity, seed=seed, device=place, name=user.name
        )
        summary = trainer.run()
        origin = found.finish(summary.metrics, training_record(summary, place, threads))

    write_json(out / "diagnostics.json", _diagnostics(settings, data, task, model))
    with atomic_path(out / "log.jsonl") as temporary:
        temporary.write_bytes((state / LOG).read_bytes())
    write_json(out / "epochs.json", {"state": os.path.relpath(state), "epochs": plain(summary.metrics)})
    record = _record(settings, data, about, task, parameter_count(config)) | {
        "settings_hash": state.name,
        "audio_seconds_per_second": round(summary.rate, 2),
        **origin,
    }
    write_json(out / "record.json", record)
    return record


def _record(
    settings: Mapping[str, Any], data: PreparedData, about: Mapping[str, Any], task: SpeechTask, parameters: int
) -> dict[str, Any]:
    """The part of the run record that says what was trained on what."""
    train, arm, seed = data.train_about, about["arm"], settings["seed"]
    return {
        "run": about["run"],
        "corpus": about["corpus"],
        "track": settings["track"],
        "arm": arm,
        "seed": seed,
        "gated": bool(about.get("gated")),
        "unmatched": bool(about.get("unmatched")),
        "mixer": dict(settings["model"].get("mixer") or {"mixer": settings["model"]["architecture"]}),
        "parameters": parameters,
        "flops_per_audio_second": task.flops_per_unit,
        "settings": dict(settings),
        "data": {key: train[key] for key in ("utterances", "seconds", "speed_histogram")} | {"hashes": data.hashes},
        "dropped": {
            "too_short": task.dropped + train["dropped"]["too_short"],
            "too_long": len(train["dropped"]["too_long"]),
        },
        "unknown_words": task.unknown_words,
        "padding": round(task.padding, 5),
    }


def _diagnostics(
    settings: Mapping[str, Any], data: PreparedData, task: SpeechTask, model: ConformerCTC
) -> dict[str, Any]:
    """Pair diagnostics of each block on the same 16 dev utterances that have an output frame, before and after training.

    The untrained model is built again from its seed: it is the same, and nothing has to be carried through
    interruptions.
    """
    frames = task.dev_store.lengths
    ids = watched_utterances(model, frames)
    if not ids:
        return {"utterances": [], "start": [], "end": []}
    lengths = torch.tensor([frames[i] for i in ids])
    features = FrameSource(task.dev_store, ids, lengths.device).batch(ids, lengths.tolist())
    start = build_model(settings, task.tokenizer, data.normalisation)[1]
    return {
        "utterances": ids,
        "start": pair_diagnostics(start.eval(), features, lengths),
        "end": pair_diagnostics(model.cpu().eval(), features, lengths),
    }


def average_arm(epochs: Path, tokenizer: Path, out: Path, selection: Selection) -> dict[str, Any]:
    """Average the best epochs of a training (`epochs`: epochs.json of `train_arm`) into a model folder that loads with one call.

    `out` gets model.safetensors, model.yaml, tokenizer.model, tokens.txt and averaging.json, whose content is returned:
    the epochs, how many were wanted, and a note when the training had fewer. A `UserError` names wanted epochs whose weights
    are no longer kept.
    """
    out, choice = Path(out), Epochs.read(epochs)
    settings = checkpoints.read_settings(choice.state)
    best = choice.chosen(selection, checkpoints.LAYOUT.weights)
    model = model_config(settings["model"]).build()
    paths = [choice.state / checkpoints.LAYOUT.weights.format(number) for number in sorted(best)]
    load_state(model, average_weights(paths))
    copy_tokenizer(tokenizer, out)
    save_model(model, out)
    return write_averaging(choice, best, selection, out)


def decode_set(
    model: Path,
    manifest: Path,
    features: Sequence[Path],
    out: Path,
    *,
    batch_seconds: float = 240.0,
    threads: int = 1,
    device: str = "auto",
) -> None:
    """Decode a manifest with the model folder `model` into the Kaldi text `out`: complete and sorted, or not there."""
    torch.set_num_threads(threads)
    place = devices.choose_device(device)
    ids = [utterance.id for utterance in read_manifest(manifest)]
    store = open_features(features)
    if missing := [i for i in ids if i not in store]:
        raise UserError(
            f"{features[0]}: no features of {len(missing)} utterances of {manifest} (first: {missing[0]}): compute them again"
        )
    network, tokenizer = load_model(model).to(place), Tokenizer.load(model)
    write_hypotheses(out, greedy_decode(network, store, tokenizer, ids, batch_seconds=batch_seconds, device=place))
