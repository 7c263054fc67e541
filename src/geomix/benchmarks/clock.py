"""The one clock of the benchmarks: competitors by turns in one process, medians over rounds."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from geomix.training import devices

BURST = 0.005  # seconds: shorter calls are timed in bursts of about this length, one number a burst


@dataclass(frozen=True)
class Timing:
    """Seconds a call took, round by round: by the clock on the wall, and of processor time, which neighbours do not touch."""

    wall: tuple[float, ...]
    processor: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Median of the wall's."""
        return statistics.median(self.wall)

    @property
    def processor_seconds(self) -> float:
        """Median of the processor's."""
        return statistics.median(self.processor)

    @property
    def spread(self) -> float:
        """Largest less smallest wall time, over the median."""
        return (max(self.wall) - min(self.wall)) / self.seconds


def measure(
    calls: Mapping[Hashable, Callable[[], Any]], *, seconds: float = 0.3, least: int = 3, most: int = 1000,
    warm_up: int = 2, device: torch.device = torch.device("cpu"),
) -> dict[Any, Timing]:  # fmt: skip
    """Time competitors by turns: in every round each of them, in this order and in the next round backwards.

    seconds : measuring time for each of them; least, most : bounds of the number of rounds (equal ones fix it)
    warm_up : calls of each that are not timed; device : is waited for before and after what is timed
    """
    repeats = {name: _repeats(call, warm_up, device) for name, call in calls.items()}
    found: dict[Hashable, list[tuple[float, float]]] = {name: [] for name in calls}
    rounds, started = 0, time.perf_counter()
    while rounds < least or (rounds < most and time.perf_counter() - started < seconds * len(calls)):
        for name in list(calls) if rounds % 2 == 0 else reversed(calls):
            call, many = calls[name], repeats[name]
            if many > 1:
                call()  # what its turn finds in the cache is its own
            devices.synchronise(device)
            used, begun = time.process_time(), time.perf_counter()
            for _ in range(many):
                call()
            devices.synchronise(device)
            found[name].append(((time.perf_counter() - begun) / many, (time.process_time() - used) / many))
        rounds += 1
    return {name: Timing(*zip(*values, strict=True)) for name, values in found.items()}


def _repeats(call: Callable[[], Any], warm_up: int, device: torch.device) -> int:
    """Calls of one burst, by the time of the last warm-up call."""
    took = BURST
    for _ in range(warm_up):
        begun = time.perf_counter()
        call()
        devices.synchronise(device)
        took = time.perf_counter() - begun
    return max(1, min(2000, int(BURST / max(took, 1e-9))))


def captured(call: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """On CUDA `call` as a CUDA graph, so that launches are not what is timed; elsewhere `call` itself."""
    if device.type != "cuda":
        return call
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # three runs on a side stream, as torch asks for
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def prepared(device: str, threads: int) -> torch.device:
    """The device by its name, with so many CPU threads, a fixed seed, and freed memory kept as trainings keep it."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    devices.keep_freed_memory()
    return devices.choose_device(device)


def alone(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of `work` in a new process, whose peak memory is its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **options).result()


def operations(call: Callable[[], Any], rows: int, device: torch.device = torch.device("cpu")) -> list[tuple]:
    """(operation of torch, its own ms on the device, % of the whole, calls), for those that take most of one call."""
    from torch.profiler import ProfilerActivity, profile

    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]) as found:
        call()
    own = lambda event: (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e3
    events = sorted(found.key_averages(), key=own, reverse=True)
    total = sum(map(own, events))
    return [(event.key, own(event), 100 * own(event) / total, event.count) for event in events[:rows]]


def operation_lines(found: list[tuple]) -> str:
    """`operations` for a terminal."""
    return "\n".join(
        f"    {name[:60]:60s} {ms:9.1f} ms {share:5.1f} % {calls:6d} calls" for name, ms, share, calls in found
    )
