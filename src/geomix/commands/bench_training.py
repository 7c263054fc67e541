"""`geomix bench step`: audio-seconds per second, MFU and peak memory of one training step of each arm."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from geomix.commands.arguments import whole
from geomix.errors import UserError
from geomix.files import write_json

CPU_BATCH_BINS = 2_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `geomix bench step`."""
    parser.add_argument("--configfile", nargs="+", default=[], metavar="F", help="overlays on config.yaml")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="arms to run (default: those of the study)")
    parser.add_argument(
        "--steps", type=whole(), metavar="N", help="batches to time (default: 300 on a GPU, 3 on a CPU)"
    )
    parser.add_argument(
        "--batch-bins",
        type=whole(),
        metavar="N",
        help=f"padded samples and tokens x vocabulary a batch (default: the config's; on a CPU at most {CPU_BATCH_BINS:,})",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: auto)")
    parser.add_argument("--threads", type=whole(), default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="print the operations that take most time, per arm")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements there too")


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


def run(arguments: argparse.Namespace) -> None:
    """Print a table with a row an arm; each arm is measured in a process of its own, whose peak memory it is."""
    from geomix.settings import E_BRANCHFORMER, load

    config = load(*arguments.configfile)
    options = {key: getattr(arguments, key) for key in ("steps", "batch_bins", "device", "threads", "profile")}
    arms = arguments.arms or config["study"]["arms"]
    if unknown := [arm for arm in arms if arm not in config["arms"]]:
        raise UserError(f"--arms {unknown[0]}: no such arm; the config has {', '.join(config['arms'])}")
    if foreign := [arm for arm in arms if config["arms"][arm].get("architecture") == E_BRANCHFORMER]:
        raise UserError(f"--arms {foreign[0]}: a model of ESPnet's, which has no training step here: leave it out")
    rows = []
    print(f"{'arm':<22}" + "".join(f"{name:>{width}}" for name, width, _ in COLUMNS))
    for arm in arms:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            row = pool.submit(measure, config, arm, **options).result()
        rows.append(row)
        print(f"{arm:<22}" + "".join(f"{form.format(**row):>{width}}" for _, width, form in COLUMNS), flush=True)
    first = rows[0]
    rate = first["device_flops"]
    print(
        f"{first['device']}, {first['threads']} threads, {first['precision']}, {first['steps']} batches of about "
        f"{first['audio_seconds_per_batch']:.0f} audio-s; MFU is of {rate['value'] / 1e12:.3g} TFLOP/s, "
        f"{rate['source']} for {rate['dtype']}"
    )
    if arguments.json:
        write_json(arguments.json, rows)


def measure(
    config: dict[str, Any],
    arm: str,
    *,
    steps: int | None = None,
    batch_bins: int | None = None,
    device: str = "auto",
    threads: int = 1,
    profile: bool = False,
) -> dict[str, Any]:
    """Time one arm's training steps on synthetic features: batching, SpecAugment, forward, backward, clipping, Adam."""
    import time

    import torch

    from geomix.models.conformer import ConformerConfig, ConformerCTC
    from geomix.models.flops import parameter_count, train_flops_per_audio_second
    from geomix.settings import training_settings
    from geomix.speech.augmentation import SpecAugment
    from geomix.speech.batching import FrameSource, numel_batches, padding_share, shuffled
    from geomix.speech.task import collate
    from geomix.training import devices
    from geomix.training.options import TrainingSettings
    from geomix.training.prefetch import prefetch
    from geomix.training.seeding import generator, seed_all
    from geomix.training.step import make_optimizer, training_step, uses_bf16

    torch.set_num_threads(threads)
    devices.keep_freed_memory()
    device = devices.choose_device(device)
    settings = training_settings(config, arm, 0, "own")
    training = dict(settings["training"])
    recipe_bins = training.pop("batch_bins")
    # the recipe's 480 s a batch are made for a GPU: a CPU takes a minute and 20 GB for one
    batch_bins = batch_bins or (recipe_bins if device.type == "cuda" else min(recipe_bins, CPU_BATCH_BINS))
    options = TrainingSettings.from_dict(training)
    vocabulary = config["tokenizer"]["size"] or 100
    model_config = ConformerConfig.from_dict({**settings["model"], "vocab": vocabulary, "seed": 0})
    seed_all(0, "initial weights")
    model = ConformerCTC(model_config).to(device).train()
    model.set_normalisation(torch.full((80,), -5.0), torch.full((80,), 4.0))
    optimizer = make_optimizer(model, options, device)

    steps = steps or (300 if device.type == "cuda" else 3)
    warm_up = 30 if device.type == "cuda" else 3  # the first steps take memory from the kernel
    examples, store = synthetic_corpus(vocabulary, hours=64 if device.type == "cuda" else 2)
    source = FrameSource(store, [e.id for e in examples], device)
    plan = shuffled(numel_batches(examples, vocabulary, batch_bins), 0, 1)
    plan = (plan * (1 + (steps + warm_up) // len(plan)))[: steps + warm_up]
    augmentation = SpecAugment(**settings["augmentation"])

    class Batches:
        def __len__(self) -> int:
            return len(plan)

        def __getitem__(self, index: int):
            return collate(source, plan[index], augmentation, generator(0, "augment", index))

    work = waited = 0.0
    begun = time.perf_counter()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for number, (batch, wait) in enumerate(prefetch(Batches())):
        if number == warm_up:
            devices.synchronise(device)
            work, waited, begun = 0.0, 0.0, time.perf_counter()
        loss = training_step(model, batch, options)
        if (number + 1) % options.accumulation == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        work, waited = work + batch.work, waited + wait
    devices.synchronise(device)
    seconds, peak = time.perf_counter() - begun, devices.peak_memory(device)
    if profile:
        _profile(model, Batches(), options, device)
    rate, flops = devices.device_flops(device), train_flops_per_audio_second(model_config)
    return {
        "arm": arm,
        "device": devices.device_name(device),
        "precision": "bf16" if uses_bf16(options, device) else "fp32",
        "threads": threads,
        "parameters": parameter_count(model_config),
        "steps": steps,
        "audio_seconds_per_batch": work / steps,
        "audio_seconds_per_second": work / seconds,
        "ms_per_batch": 1000 * seconds / steps,
        "tflops": flops * work / seconds / 1e12,
        "mfu_percent": 100 * flops * work / seconds / rate["value"],
        "device_flops": rate,
        "peak_gb": peak / 1e9,
        "padding_percent": 100 * padding_share(plan[warm_up:]),
        "data_wait_percent": 100 * waited / seconds,
        "loss": float(loss),
    }


def synthetic_corpus(vocabulary: int, hours: float):
    """A list of Example and a mapping id -> features (frames, 80) float16, with lengths as in train-clean-100.

    Durations follow that set's shape: three quarters near 14.6 s (the cut of long readings), the rest spread from 1.4
    to 14 s, mean about 12.7 s; one token (of a vocabulary of 5000) every 0.3 s. The values are noise around a log-mel's
    mean.
    """
    import numpy as np

    from geomix.speech.batching import Example

    random = np.random.default_rng(0)
    examples, store = [], {}
    noise = random.normal(-5, 4, (20_000, 80)).astype(np.float16)
    total = 0.0
    while total < 3600 * hours:
        seconds = random.normal(14.6, 1.0) if random.random() < 0.75 else random.uniform(1.4, 13.0)
        seconds = float(np.clip(seconds, 1.4, 24.5))
        samples = int(16_000 * seconds)
        frames = samples // 160 + 1
        start = random.integers(0, len(noise) - frames)
        name = f"synthetic-{len(examples):06d}"
        store[name] = noise[start : start + frames]
        tokens = tuple(int(t) for t in random.integers(2, vocabulary - 1, int(seconds / 0.3)))
        examples.append(Example(name, samples, frames, tokens))
        total += seconds
    return examples, store


def _profile(model, batches, options, device) -> None:
    """Print the operations of three training steps by their own time on the device."""
    from torch.profiler import ProfilerActivity, profile

    from geomix.training.step import training_step

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities) as found:
        for number in range(min(3, len(batches))):
            training_step(model, batches[number], options)
            model.zero_grad(set_to_none=True)
    order = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=order, row_limit=25, max_name_column_width=60), file=sys.stderr)
