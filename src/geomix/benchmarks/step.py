"""`geomix bench step`: audio-seconds per second, MFU and peak memory of one training step of each arm."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from geomix.benchmarks.clock import alone, measure, operation_lines, operations, prepared
from geomix.benchmarks.options import Common, option
from geomix.errors import UserError
from geomix.files import write_json
from geomix.models.architectures import model_config
from geomix.models.flops import parameter_count, train_flops_per_audio_second
from geomix.settings import E_BRANCHFORMER, load, training_settings
from geomix.speech.augmentation import SpecAugment
from geomix.speech.batching import Example, FrameSource, numel_batches, padding_share, shuffled
from geomix.speech.task import collate
from geomix.training import devices
from geomix.training.options import TrainingSettings
from geomix.training.prefetch import prefetch
from geomix.training.seeding import generator, seed_all
from geomix.training.step import make_optimizer, training_step, uses_bf16
from geomix.training.task import Batch

CPU_BATCH_BINS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `geomix bench step`; it writes step.json."""

    device: str = option("auto", "auto, cpu, cuda or mps")
    configfile: tuple[str, ...] = option((), "overlays on config.yaml")
    arms: tuple[str, ...] = option((), "arms to run (default: those of the study)")
    steps: int | None = option(None, "batches to time (default: 300 on a GPU, 3 on a CPU)")
    batch_bins: int | None = option(
        None,
        f"padded samples and tokens x vocabulary a batch (default: the config's; on a CPU at most {CPU_BATCH_BINS:,})",
    )
    profile: bool = option(False, "print the operations that take most time, per arm")
    json: Path | None = option(None, "write the measurements there instead")


COLUMNS = (
    ("parameters", 12, "{parameters:,}"),
    ("audio-s/s", 11, "{audio_seconds_per_second:,.1f}"),
    ("ms/batch", 10, "{ms_per_batch:,.1f}"),
    ("TFLOP/s", 9, "{tflops:.3f}"),
    ("MFU %", 7, "{mfu_percent:.1f}"),
    ("peak GB", 9, "{peak_gb:.2f}"),
    ("padding %", 11, "{padding_percent:.2f}"),
    ("data wait %", 13, "{data_wait_percent:.2f}"),
)


def run(options: Options) -> None:
    """Print a table with a row an arm; each arm is measured in a process of its own, whose peak memory it is."""
    config = load(*options.configfile)
    arms = options.arms or config["study"]["arms"]
    if unknown := [arm for arm in arms if arm not in config["arms"]]:
        raise UserError(f"--arms {unknown[0]}: no such arm; the config has {', '.join(config['arms'])}")
    if foreign := [arm for arm in arms if config["arms"][arm].get("architecture") == E_BRANCHFORMER]:
        raise UserError(f"--arms {foreign[0]}: a model of ESPnet's, which has no training step here: leave it out")
    rows = []
    print(f"{'arm':<22}" + "".join(f"{name:>{width}}" for name, width, _ in COLUMNS))
    for arm in arms:
        rows.append(alone(measure_arm, config, arm, options))
        print(f"{arm:<22}" + "".join(f"{form.format(**rows[-1]):>{width}}" for _, width, form in COLUMNS), flush=True)
    first, rate = rows[0], rows[0]["device_flops"]
    print(
        f"{first['device']}, {first['threads']} threads, {first['precision']}, {first['steps']} batches of about "
        f"{first['audio_seconds_per_batch']:.0f} audio-s; MFU is of {rate['value'] / 1e12:.3g} TFLOP/s, "
        f"{rate['source']} for {rate['dtype']}"
    )
    write_json(options.json or options.out / "step.json", rows)


def measure_arm(config: Mapping[str, Any], arm: str, options: Options) -> dict[str, Any]:
    """The row of one arm: batching, SpecAugment, forward, backward, clipping and Adam, on made-up features."""
    device = prepared(options.device, options.threads)
    cuda = device.type == "cuda"
    steps, warm_up = options.steps or (300 if cuda else 3), 30 if cuda else 3  # the first take memory from the kernel
    training = _Training(config, arm, device, options.batch_bins, steps + warm_up)
    training.take(warm_up)
    training.audio = training.waited = 0.0
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    # one round of all steps, as a training does them: nothing waits for the device in between
    timing = measure({arm: lambda: training.take(steps)}, least=1, most=1, warm_up=0, device=device)[arm]
    seconds, audio, peak = timing.seconds, training.audio, devices.peak_memory(device)
    rate, flops = devices.device_flops(device), train_flops_per_audio_second(training.config)
    row = {
        "arm": arm,
        "device": devices.device_name(device),
        "precision": "bf16" if uses_bf16(training.settings, device) else "fp32",
        "threads": options.threads,
        "parameters": parameter_count(training.config),
        "steps": steps,
        "audio_seconds_per_batch": audio / steps,
        "audio_seconds_per_second": audio / seconds,
        "ms_per_batch": 1000 * seconds / steps,
        "tflops": flops * audio / seconds / 1e12,
        "mfu_percent": 100 * flops * audio / seconds / rate["value"],
        "device_flops": rate,
        "peak_gb": peak / 1e9,
        "padding_percent": 100 * padding_share(training.plan[warm_up:]),
        "data_wait_percent": 100 * training.waited / seconds,
        "loss": training.loss,
    }
    if options.profile:
        batch = training[0]
        found = operations(lambda: training_step(training.model, batch, training.settings), 25, device)
        print(arm, operation_lines(found), sep="\n", file=sys.stderr)
    return row


class _Training:
    """`count` training steps of an arm on made-up batches, taken some at a time; sums over those taken: audio and waiting, in s."""

    def __init__(self, config: Mapping[str, Any], arm: str, device: torch.device, bins: int | None, count: int) -> None:
        settings = training_settings(config, arm, 0, "own")
        training, units = dict(settings["training"]), config["tokenizer"]["size"] or 100
        recipe = training.pop("batch_bins")
        # the recipe's 480 s a batch are made for a GPU: a CPU takes a minute and 20 GB for one
        bins = bins or (recipe if device.type == "cuda" else min(recipe, CPU_BATCH_BINS))
        self.settings = TrainingSettings.from_dict(training)
        # another architecture names all that it takes; ours takes the seed of a signed table as well
        seed = {} if "architecture" in settings["model"] else {"seed": 0}
        self.config = model_config({**settings["model"], "vocab": units, **seed})
        seed_all(0, "initial weights")
        self.model, bands = self.config.build().to(device).train(), self.config.features
        self.model.set_normalisation(torch.full((bands,), -5.0), torch.full((bands,), 4.0))
        self._optimizer = make_optimizer(self.model, self.settings, device)
        examples, store = synthetic_corpus(units, hours=64 if device.type == "cuda" else 2, bands=bands)
        self._source = FrameSource(store, [example.id for example in examples], device)
        self._augmentation = SpecAugment(**settings["augmentation"])
        plan = shuffled(numel_batches(examples, units, bins), 0, 1)
        self.plan = (plan * (1 + count // len(plan)))[:count]
        self._batches = enumerate(prefetch(self), 1)
        self.audio = self.waited = self.loss = 0.0

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, index: int) -> Batch:
        return collate(self._source, self.plan[index], self._augmentation, generator(0, "augment", index))

    def take(self, steps: int) -> None:
        for _ in range(steps):
            number, (batch, waited) = next(self._batches)
            update = number % self.settings.accumulation == 0
            loss = train_on(self.model, batch, self.settings, self._optimizer, update=update)
            self.audio, self.waited = self.audio + batch.work, self.waited + waited
        self.loss = float(loss)


def train_on(
    model: nn.Module, batch: Batch, settings: TrainingSettings, optimizer: torch.optim.Optimizer, *, update: bool = True
) -> torch.Tensor:
    """One training step, with the update that ends an accumulation -> the loss."""
    loss = training_step(model, batch, settings)
    if update:
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss


def synthetic_corpus(units: int, hours: float, bands: int = 80) -> tuple[list[Example], dict[str, np.ndarray]]:
    """Examples, and features by id (frames, bands) float16, with lengths as in train-clean-100.

    Durations follow that set's shape: three quarters near 14.6 s (the cut of long readings), the rest spread from 1.4
    to 14 s, mean about 12.7 s; a token every 0.3 s. The values are noise around a log-mel's mean.
    """
    random = np.random.default_rng(0)
    examples, store = [], {}
    noise = random.normal(-5, 4, (20_000, bands)).astype(np.float16)
    total = 0.0
    while total < 3600 * hours:
        seconds = random.normal(14.6, 1.0) if random.random() < 0.75 else random.uniform(1.4, 13.0)
        seconds = float(np.clip(seconds, 1.4, 24.5))
        samples = int(16_000 * seconds)
        frames = samples // 160 + 1
        start = random.integers(0, len(noise) - frames)
        name = f"synthetic-{len(examples):06d}"
        store[name] = noise[start : start + frames]
        tokens = tuple(int(t) for t in random.integers(2, units - 1, int(seconds / 0.3)))
        examples.append(Example(name, samples, frames, tokens))
        total += seconds
    return examples, store
