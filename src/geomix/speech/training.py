"""Training of speech recognition on the track own: what the workflow's rules train and average call.

Settings are a plain dictionary of all that decides the weights, and nothing else:

    track, seed
    model         fields of `models.conformer.ConformerConfig` but `vocab` (the tokenizer's size) and `seed` (the run's)
    training      `batch_bins` (see `batching.numel_batches`) and the fields of `training.options.TrainingSettings`
    augmentation  fields of `speech.augmentation.SpecAugment`
    init_from     folder, weights, tokens of the model to start from; absent: initial weights (`speech.starting`)
    features      mels, dtype; not read here: the hashes of the data stand for them

What never changes a weight (which epochs are averaged, detectors, saves, threads, the device) is given beside them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from geomix.mixers.own.source import keep, kept
from geomix.models.architectures import model_config
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.models.diagnostics import pair_diagnostics, watched_utterances
from geomix.models.flops import train_flops_per_audio_second
from geomix.models.saved import save_model
from geomix.speech.augmentation import SpecAugment
from geomix.speech.batching import FrameSource
from geomix.speech.features import read_normalisation
from geomix.speech.prepared import PreparedData, read_counts, read_dropped
from geomix.speech.starting import Start, start_from
from geomix.speech.task import SpeechTask
from geomix.speech.tokenizer import Tokenizer, copy_tokenizer
from geomix.tensors import load_state
from geomix.training import checkpoints, devices
from geomix.training.averaging import Epochs, Selection, average_weights, write_averaging
from geomix.training.options import TrainerOptions, TrainingSettings
from geomix.training.record import About, RunRecord, SpeechPart
from geomix.training.run import Described, Job, Outputs, Trained, run
from geomix.training.seeding import seed_all


def model_settings(settings: Mapping[str, Any], vocab: int) -> ConformerConfig:
    """The configuration of a run's model for `vocab` output units."""
    values = {**settings["model"], "vocab": vocab}
    return model_config(values if "architecture" in values else {**values, "seed": settings["seed"]})


def build_model(
    settings: Mapping[str, Any], tokenizer: Tokenizer, normalisation: Path
) -> tuple[ConformerConfig, ConformerCTC]:
    """The untrained model of a run: initial weights depend on its seed and configuration, and the model it starts from, alone."""
    config = model_settings(settings, tokenizer.size)
    seed_all(settings["seed"], "initial weights")
    model = config.build()
    model.set_normalisation(*read_normalisation(normalisation))
    if "init_from" in settings:
        start_from(model, tokenizer, settings["init_from"])
    return config, model


def make_task(
    settings: Mapping[str, Any],
    data: PreparedData,
    model: ConformerCTC,
    device: torch.device,
    flops_per_audio_second: float,
) -> SpeechTask:
    """The task of a run's settings, for its model."""
    return SpeechTask(
        model,
        data,
        batch_bins=settings["training"]["batch_bins"],
        augmentation=SpecAugment(**settings["augmentation"]),
        seed=settings["seed"],
        device=device,
        flops_per_audio_second=flops_per_audio_second,
    )


def training_keys(settings: Mapping[str, Any]) -> TrainingSettings:
    """What the loop reads of a run's settings; `batch_bins` is the task's."""
    return TrainingSettings.from_dict({k: v for k, v in settings["training"].items() if k != "batch_bins"})


def train_arm(
    settings: Mapping[str, Any],
    data: PreparedData,
    *,
    about: About,
    options: TrainerOptions,
    out: Path,
    state_root: Path = Path("state"),
    threads: int = 1,
    device: str = "auto",
) -> RunRecord:
    """Train one arm to the end, or go on where it was interrupted, and write what the train rule declares.

    Parameters
    ----------
    state_root : the store (`training.store`); the state folder below it is named by the hash of settings and data
    out : folder of record.json, log.jsonl, diagnostics.json and epochs.json (`training.run.run`)
    device : auto (CUDA, MPS, CPU), or a name
    """
    place = devices.choose_device(device)
    tokenizer = Tokenizer.load(data.tokenizer)
    config = model_settings(settings, tokenizer.size)
    flops = train_flops_per_audio_second(config)
    job = Job(
        about=about,
        track=settings["track"],
        seed=settings["seed"],
        settings=settings,
        data_hashes=data.hashes,
        training=training_keys(settings),
        options=options,
        model=lambda: build_model(settings, tokenizer, data.normalisation)[1],
        task=lambda model: make_task(settings, data, model, place, flops),
        checkpoint_settings={**settings, "model": config.to_dict()},
        device=place,
        threads=threads,
        prepare=devices.keep_freed_memory,
        state_root=state_root,
        keep=lambda folder: keep(settings["model"].get("mixer"), folder),
    )
    outputs = Outputs(diagnose=_diagnostics, describe=lambda trained: _describe(settings, data, trained))
    return run(job, outputs, Path(out))


def _describe(settings: Mapping[str, Any], data: PreparedData, trained: Trained[SpeechTask]) -> Described:
    """What was trained on what, in the terms of speech recognition."""
    task, dropped, origin = trained.task, read_dropped(data.train_summary), settings.get("init_from")
    return Described(
        data=read_counts(data.train_summary) | {"hashes": data.hashes},
        domain=SpeechPart(
            flops_per_audio_second=task.flops_per_unit,
            audio_seconds_per_second=round(trained.summary.rate, 2),
            dropped=dataclasses.replace(dropped, too_short=task.dropped + dropped.too_short),
            unknown_words=task.unknown_words,
            padding=round(task.padding, 5),
            started_from=dataclasses.asdict(Start.of(task.tokenizer, origin)) if origin else None,
        ),
    )


def _diagnostics(start: ConformerCTC, trained: Trained[SpeechTask]) -> dict[str, Any]:
    """Pair diagnostics of each block on the same 16 dev utterances that have an output frame, before and after training."""
    store, end = trained.task.dev_store, trained.model
    frames = store.lengths
    ids = watched_utterances(end, frames)
    if not ids:
        return {"utterances": [], "start": [], "end": []}
    lengths = torch.tensor([frames[i] for i in ids])
    features = FrameSource(store, ids, lengths.device).batch(ids, lengths.tolist())
    return {
        "utterances": ids,
        "start": pair_diagnostics(start, features, lengths),
        "end": pair_diagnostics(end.cpu(), features, lengths),
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
    model = model_config(kept(settings["model"], choice.state)).build()
    paths = [choice.state / checkpoints.LAYOUT.weights.format(number) for number in sorted(best)]
    load_state(model, average_weights(paths))
    copy_tokenizer(tokenizer, out)
    save_model(model, out)
    return write_averaging(choice, best, selection, out)
