"""One training step of the same arm on the same batch in both tracks, in one process, by turns.

Needs ESPnet. A step is what each trainer does with a batch: SpecAugment, forward, backward, clipping, Adam. ESPnet's computes the
features of the audio in it; ours were computed once for all arms, seeds and epochs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geomix.benchmarks.clock import Timing, measure, operations
from geomix.benchmarks.forms import TOLERANCES, Agreement, compare, speed_up
from geomix.benchmarks.step import train_on
from geomix.espnet_track.agreement import NO_DROPOUT, encode, pair_of_models
from geomix.espnet_track.settings import specaug_keys
from geomix.espnet_track.weights import espnet_name
from geomix.models.architectures import model_config
from geomix.models.flops import parameter_count, train_flops_per_audio_second
from geomix.settings import ESPNET_VERSION
from geomix.speech.augmentation import SpecAugment
from geomix.speech.features import log_mel
from geomix.training import devices
from geomix.training.cpu import cpu_name
from geomix.training.options import TrainingSettings
from geomix.training.record import package_versions
from geomix.training.seeding import generator
from geomix.training.step import make_optimizer
from geomix.training.task import Batch


def measure_tracks(
    settings: Mapping[str, Any], vocab: int, utterances: int, seconds: float, rounds: int, profile: int
) -> dict[str, Any]:
    """Time both tracks' training step of an arm (fp32, CPU, the threads that torch has).

    settings : the arm's `training_settings`; vocab : output units
    utterances, seconds : the batch: so many utterances of equal length
    rounds : steps of each track that are timed, by turns, after one that is not
    profile : how many operations the profile table names

    Returns what espnet.csv and espnet.md show: of each of "tracks" seconds and processor seconds round by round, audio-s/s, share of
    the matrix-product rate and profile; "ratio" and "cpu_ratio" (ESPnet's time over ours, medians over rounds; None unless loss and
    gradients agreed) and the relative "difference" of those; what was measured on what.
    """
    speech, tokens = _batch(vocab, utterances, seconds)
    features = log_mel(speech)
    agreement = _agreement(settings, vocab, features, tokens)
    ours, theirs = _models(settings, vocab)
    calls = _own_step(ours, settings, features, tokens), _espnet_step(theirs, settings, speech, tokens)
    steps = dict(zip(("own", "espnet"), calls, strict=True))
    times = measure(steps, least=rounds, most=rounds, warm_up=1)
    config = model_config({**settings["model"], "vocab": vocab, "seed": settings["seed"]})
    rate, flops = devices.device_flops(torch.device("cpu")), train_flops_per_audio_second(config, seconds)
    audio, threads = utterances * seconds, torch.get_num_threads()
    found = {
        track: {
            "seconds": timing.wall,
            "cpu_seconds": timing.processor,
            "audio_s_per_s": audio / timing.seconds,
            # the rate is measured in processor time too
            "share_of_rate": audio * threads / timing.processor_seconds * flops / rate["value"],
            "profile": [[name, *numbers[1:]] for name, numbers in operations(steps[track], profile).items()],
        }
        for track, timing in times.items()
    }
    return {
        "espnet": ESPNET_VERSION,
        "tracks": found,
        "ratio": speed_up(times["own"], times["espnet"], agreement),
        "cpu_ratio": speed_up(*(Timing(times[track].processor, ()) for track in steps), agreement),
        "difference": agreement.relative,
        "parameters": parameter_count(config),
        "flops_per_audio_second": flops,
        "device": cpu_name(),
        "device_flops": rate,
        "threads": threads,
        "packages": package_versions(),
    }


def _models(settings: Mapping[str, Any], vocab: int) -> tuple[nn.Module, nn.Module]:
    """The arm in both code bases, with the same weights and a normalisation that log-mels of noise fit."""
    tokens = ["<blank>", "<unk>", *(f"t{i}" for i in range(vocab - 3)), "<sos/eos>"]
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "feats_stats.npz"
        ones = np.ones(settings["model"]["features"], np.float32)
        np.savez(stats, count=1, sum=-5 * ones, sum_square=(25 + 16) * ones)
        return pair_of_models(settings, tokens, stats)


def _agreement(settings: Mapping[str, Any], vocab: int, features: Tensor, tokens: Tensor) -> Agreement:
    """Loss and every gradient of both tracks on the same log-mel, without dropout and SpecAugment."""
    still = {**settings, "model": {**settings["model"], **NO_DROPOUT}}
    ours, theirs = (model.double().train() for model in _models(still, vocab))
    features = features.double()  # rounding of an fp32 pass through all blocks would hide what differs
    lengths = torch.full((len(features),), features.shape[1])
    token_lengths = torch.full((len(tokens),), tokens.shape[1])
    loss = ours(features, lengths, tokens, token_lengths)["loss"]
    loss.backward()
    encoded, frames = encode(theirs, features, lengths)
    other = theirs.ctc(encoded, frames, tokens, token_lengths)
    other.backward()
    attention, named = settings["model"]["mixer"]["mixer"] == "attention", dict(theirs.named_parameters())
    pairs = [(p.grad, named[espnet_name(name, attention=attention)].grad) for name, p in ours.named_parameters()]
    mine, others = zip(*(pair for pair in pairs if pair[0] is not None), strict=True)
    return compare([loss.detach(), *mine], [other.detach().reshape(loss.shape), *others], TOLERANCES[torch.float32])


def _batch(vocab: int, utterances: int, seconds: float) -> tuple[Tensor, Tensor]:
    """Noise as audio (B, samples), and tokens (B, U), one every 0.3 s."""
    draw = torch.Generator().manual_seed(0)
    speech = 0.1 * torch.randn(utterances, int(16_000 * seconds), generator=draw)
    return speech, torch.randint(2, vocab - 1, (utterances, int(seconds / 0.3)), generator=draw)


def _own_step(model: nn.Module, settings: Mapping[str, Any], features: Tensor, tokens: Tensor) -> Callable[[], None]:
    training = {key: value for key, value in settings["training"].items() if key != "batch_bins"}
    options = TrainingSettings.from_dict({**training, "accumulation": 1, "precision": "fp32"})
    optimizer = make_optimizer(model.train(), options, torch.device("cpu"))
    augmentation = SpecAugment(**settings["augmentation"])
    lengths = torch.full((len(features),), features.shape[1])
    token_lengths = torch.full((len(tokens),), tokens.shape[1])

    def step() -> None:
        inputs = {"features": augmentation(features, lengths, generator(0)), "lengths": lengths}
        batch = Batch({**inputs, "tokens": tokens, "token_lengths": token_lengths}, 0.0)
        train_on(model, batch, options, optimizer)

    return step


def _espnet_step(model: nn.Module, settings: Mapping[str, Any], speech: Tensor, tokens: Tensor) -> Callable[[], None]:
    """The body of espnet2.train.trainer.Trainer.train_one_epoch for one batch."""
    from espnet2.asr.specaug.specaug import SpecAug

    training, keys = settings["training"], specaug_keys(settings["augmentation"])
    model.specaug = SpecAug(**keys["specaug_conf"]) if keys["specaug"] else None
    model.train()
    classes = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = classes[training["optimizer"]](
        model.parameters(), lr=float(training["learning_rate"]), weight_decay=float(training["weight_decay"])
    )
    lengths = torch.full((len(speech),), speech.shape[1])
    token_lengths = torch.full((len(tokens),), tokens.shape[1])

    def step() -> None:
        loss, _, _ = model(speech, lengths, tokens.clone(), token_lengths)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), float(training["clip"]))
        optimizer.step()
        optimizer.zero_grad()

    return step
