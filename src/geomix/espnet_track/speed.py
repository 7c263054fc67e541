"""One training step of the same arm on the same batch in both tracks, in one process, by turns.

Needs ESPnet. A step is what each trainer does with a batch: SpecAugment, forward, backward, clipping, Adam. ESPnet's computes the
features of the audio in it; ours were computed once for all arms, seeds and epochs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geomix.espnet_track.agreement import pair_of_models
from geomix.espnet_track.settings import specaug_keys
from geomix.models.architectures import model_config
from geomix.models.flops import parameter_count, train_flops_per_audio_second
from geomix.settings import ESPNET_VERSION
from geomix.speech.augmentation import SpecAugment
from geomix.speech.features import log_mel
from geomix.training import devices
from geomix.training.options import TrainingSettings
from geomix.training.record import package_versions
from geomix.training.seeding import generator
from geomix.training.step import make_optimizer, training_step
from geomix.training.task import Batch

TRACKS = ("own", "espnet")


def measure(
    settings: Mapping[str, Any], vocab: int, utterances: int, seconds: float, rounds: int, profile: int
) -> dict[str, Any]:
    """Time both tracks' training step of an arm (fp32, CPU, the threads that torch has).

    Parameters
    ----------
    settings : the arm's `training_settings`; vocab : output units
    utterances, seconds : the batch: so many utterances of equal length
    rounds : steps of each track that are timed, by turns, after one that is not
    profile : how many operations the profile table names

    Returns
    -------
    {"tracks": {track: {"seconds": [...], "cpu_seconds": [...], "audio_s_per_s", "share_of_rate", "profile": [[operation,
    share %, calls], ...]}}, "ratio" and "cpu_ratio" (medians of espnet's time over ours, round by round; processor time does not
    count what other work on the machine took), "loss": {track: of the first batch}, and what was measured on what}
    """
    tokens = ["<blank>", "<unk>", *(f"t{i}" for i in range(vocab - 3)), "<sos/eos>"]
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "feats_stats.npz"
        ones = np.ones(settings["model"]["features"], np.float32)
        np.savez(stats, count=1, sum=-5 * ones, sum_square=(25 + 16) * ones)
        ours, theirs = pair_of_models(settings, tokens, stats)
    config = model_config({**settings["model"], "vocab": vocab, "seed": settings["seed"]})
    steps = {
        "own": _own_step(ours, settings, *_batch(vocab, utterances, seconds)),
        "espnet": _espnet_step(theirs, settings, *_batch(vocab, utterances, seconds)),
    }
    audio = utterances * seconds
    rate, flops = devices.device_flops(torch.device("cpu")), train_flops_per_audio_second(config, seconds)
    losses = {track: steps[track]() for track in TRACKS}
    times: dict[str, list[float]] = {track: [] for track in TRACKS}
    cpu: dict[str, list[float]] = {track: [] for track in TRACKS}
    for number in range(rounds):
        for track in TRACKS if number % 2 else TRACKS[::-1]:
            begun, used = time.perf_counter(), time.process_time()
            steps[track]()
            times[track].append(time.perf_counter() - begun)
            cpu[track].append(time.process_time() - used)
    found = {}
    for track in TRACKS:
        speed = audio / statistics.median(times[track])
        busy = statistics.median(cpu[track]) / torch.get_num_threads()
        found[track] = {
            "seconds": times[track],
            "cpu_seconds": cpu[track],
            "audio_s_per_s": speed,
            # the rate is measured in processor time too
            "share_of_rate": audio / busy * flops / rate["value"],
            "profile": _profile(steps[track], profile),
        }
    return {
        "espnet": ESPNET_VERSION,
        "tracks": found,
        "ratio": statistics.median(b / a for a, b in zip(times["own"], times["espnet"], strict=True)),
        "cpu_ratio": statistics.median(b / a for a, b in zip(cpu["own"], cpu["espnet"], strict=True)),
        "loss": losses,
        "parameters": parameter_count(config),
        "flops_per_audio_second": flops,
        "device": devices.cpu_name(),
        "device_flops": rate,
        "threads": torch.get_num_threads(),
        "packages": package_versions(),
    }


def _batch(vocab: int, utterances: int, seconds: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise as audio (B, samples), and tokens (B, U), one every 0.3 s."""
    draw = torch.Generator().manual_seed(0)
    speech = 0.1 * torch.randn(utterances, int(16_000 * seconds), generator=draw)
    return speech, torch.randint(2, vocab - 1, (utterances, int(seconds / 0.3)), generator=draw)


def _own_step(
    model: torch.nn.Module, settings: Mapping[str, Any], speech: torch.Tensor, tokens: torch.Tensor
) -> Callable[[], float]:
    training = {key: value for key, value in settings["training"].items() if key != "batch_bins"}
    options = TrainingSettings.from_dict({**training, "accumulation": 1, "precision": "fp32"})
    optimizer = make_optimizer(model.train(), options, torch.device("cpu"))
    augmentation = SpecAugment(**settings["augmentation"])
    features = log_mel(speech)
    lengths = torch.full((len(features),), features.shape[1])
    token_lengths = torch.full((len(tokens),), tokens.shape[1])

    def step() -> float:
        inputs = {"features": augmentation(features, lengths, generator(0)), "lengths": lengths}
        batch = Batch({**inputs, "tokens": tokens, "token_lengths": token_lengths}, 0.0)
        loss = training_step(model, batch, options)
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss)

    return step


def _espnet_step(
    model: torch.nn.Module, settings: Mapping[str, Any], speech: torch.Tensor, tokens: torch.Tensor
) -> Callable[[], float]:
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

    def step() -> float:
        loss, _, _ = model(speech, lengths, tokens.clone(), token_lengths)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), float(training["clip"]))
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    return step


def _profile(step: Callable[[], float], rows: int) -> list[list[Any]]:
    """Operations of one step by their own CPU time: [name, share of the step in %, calls]."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        step()
    events = sorted(found.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    return [[event.key, 100 * event.self_cpu_time_total / total, event.count] for event in events[:rows]]
