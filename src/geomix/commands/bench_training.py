"""Benchmark of a training step: audio-seconds per second, MFU and peak memory of each arm, on whichever device is there."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from geomix.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `geomix bench step`."""
    parser.add_argument("--configfile", nargs="+", default=[], metavar="F", help="overlays on config.yaml")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="arms to run (default: those of the study)")
    parser.add_argument("--steps", type=int, metavar="N", help="batches to time (default: 300 on a GPU, 3 on a CPU)")
    parser.add_argument(
        "--batch-bins",
        type=int,
        metavar="N",
        help="padded samples and tokens x vocabulary a batch (default: the config's)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: auto)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="print the operations that take most time, per arm")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements there too")
    parser.add_argument(
        "--one", metavar="ARM", help=argparse.SUPPRESS
    )  # a process an arm: peak memory is the process's


def run(arguments: argparse.Namespace) -> None:
    """Print a table with a row an arm."""
    from geomix.config import load_config

    config = load_config(*arguments.configfile)
    if arguments.one:
        print(json.dumps(measure(config, arguments.one, arguments)))
        return
    rows = []
    head = f"{'arm':<22}{'parameters':>12}{'audio-s/s':>11}{'ms/batch':>10}{'TFLOP/s':>9}{'MFU %':>7}{'peak GB':>9}{'padding %':>11}{'loss':>9}"
    print(head)
    for arm in arguments.arms or config["study"]["arms"]:
        # everything but the list of arms, which `--one` stands for
        command = [sys.executable, "-m", "geomix.cli", "bench", "step", "--one", arm, "--device", arguments.device]
        command += ["--threads", str(arguments.threads)] + (["--profile"] if arguments.profile else [])
        command += ["--steps", str(arguments.steps)] if arguments.steps else []
        command += ["--batch-bins", str(arguments.batch_bins)] if arguments.batch_bins else []
        command += ["--configfile", *arguments.configfile] if arguments.configfile else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise UserError(f"arm {arm}: the benchmark stopped (exit status {done.returncode}): see the message above")
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        print(
            f"{arm:<22}{row['parameters']:>12,}{row['audio_seconds_per_second']:>11,.1f}{row['ms_per_batch']:>10,.1f}"
            f"{row['flops'] / 1e12:>9.3f}{100 * row['mfu']:>7.1f}{row['peak_memory_bytes'] / 1e9:>9.2f}{100 * row['padding']:>11.2f}"
            f"{row['loss']:>9.3g}",
            flush=True,
        )
    first = rows[0]
    rate = first["device_flops"]
    print(
        f"{first['device']}, {first['precision']}, {first['steps']} batches of about {first['audio_seconds_per_batch']:.0f} audio-s; "
        f"MFU refers to {rate['value'] / 1e12:.3g} TFLOP/s ({rate['source']} {rate['dtype']})"
    )
    if arguments.json:
        from geomix.files import write_json

        write_json(arguments.json, rows)


def measure(config: dict[str, Any], arm: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time training steps of one arm: forward, backward, clipping and Adam, SpecAugment and batching, on synthetic features."""
    import time

    import torch

    from geomix.config import training_settings
    from geomix.models.conformer import ConformerConfig, ConformerCTC
    from geomix.models.flops import parameter_count, train_flops_per_audio_second
    from geomix.speech.augmentation import SpecAugment
    from geomix.speech.batching import FrameSource, numel_batches, padding_share, shuffled
    from geomix.speech.training_task import collate
    from geomix.training import devices
    from geomix.training.loop import TrainingSettings, make_optimizer, prefetch, training_step, uses_bf16
    from geomix.training.seeding import generator, seed_all

    torch.set_num_threads(arguments.threads)
    devices.keep_freed_memory()
    device = devices.choose_device(arguments.device)
    settings = training_settings(config, arm, 0, "own")
    training = dict(settings["training"])
    batch_bins = arguments.batch_bins or training["batch_bins"]
    training.pop("batch_bins")
    options = TrainingSettings.from_dict(training)
    vocabulary = config["tokenizer"]["size"] or 100
    model_config = ConformerConfig.from_dict({**settings["model"], "vocab": vocabulary, "seed": 0})
    seed_all(0, "initial weights")
    model = ConformerCTC(model_config).to(device).train()
    model.set_normalisation(torch.full((80,), -5.0), torch.full((80,), 4.0))
    optimizer = make_optimizer(model, options, device)

    steps = arguments.steps or (300 if device.type == "cuda" else 3)
    warm_up = 30 if device.type == "cuda" else 1
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
    seconds = time.perf_counter() - begun
    if arguments.profile:
        _profile(model, Batches(), options, device)
    rate, flops = devices.device_flops(device), train_flops_per_audio_second(model_config)
    return {
        "arm": arm,
        "device": devices.device_name(device),
        "precision": "bf16" if uses_bf16(options, device) else "fp32",
        "threads": arguments.threads,
        "parameters": parameter_count(model_config),
        "steps": steps,
        "audio_seconds_per_batch": work / steps,
        "audio_seconds_per_second": work / seconds,
        "ms_per_batch": 1000 * seconds / steps,
        "flops": flops * work / seconds,
        "mfu": flops * work / seconds / rate["value"],
        "device_flops": rate,
        "peak_memory_bytes": devices.peak_memory(device),
        "padding": padding_share(plan[warm_up:]),
        "data_wait": waited / seconds,
        "loss": float(loss),
    }


def synthetic_corpus(vocabulary: int, hours: float):
    """Examples and features with the lengths of LibriSpeech's train-clean-100: (list of Example, mapping id -> (frames, 80) float16).

    Durations follow that set's shape: three quarters near 14.6 s (the cut of long readings), the rest spread from 1.4 to 14 s, mean about 12.7 s;
    one token (of a vocabulary of 5000) every 0.3 s. The values are noise around a log-mel's mean.
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

    from geomix.training.loop import training_step

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities) as found:
        for number in range(min(3, len(batches))):
            training_step(model, batches[number], options)
            model.zero_grad(set_to_none=True)
    order = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=order, row_limit=25, max_name_column_width=60), file=sys.stderr)
