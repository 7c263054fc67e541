"""The device a run uses: choice, rate, peak memory, and the operations on it that are not deterministic."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import sys
import time
import warnings
from collections.abc import Iterator

import torch

from geomix.errors import UserError
from geomix.training.cpu import cpu_name

# dense bf16 matrix rates of data sheets, FLOP/s; matched against the device's name in this order
STATED_FLOPS = {
    "GH200": 989e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "A40": 149.7e12,
    "L40S": 362e12,
}


def choose_device(wanted: str = "auto") -> torch.device:
    """CUDA, else Apple's MPS, else the CPU; or the one told by name ("cpu", "cuda", "cuda:1", "mps")."""
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise UserError(f"device {wanted!r} is unknown: use auto, cpu, cuda or mps") from None
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present.get(device.type, False):
        raise UserError(f"device {wanted!r} is not on this machine: use device auto or cpu")
    return device


def device_name(device: torch.device) -> str:
    """Name of the device as its vendor gives it."""
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else cpu_name()
        if device.type == "cpu"
        else "Apple MPS"
    )


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@functools.cache
def device_flops(device: torch.device) -> dict[str, float | str]:
    """The matrix-product rate that MFU refers to: {"value": FLOP/s, "source": "stated" | "measured", "dtype": ...}.

    A GPU of the table has its data sheet's bf16 rate; everything else is measured here, once a process: fp32 with the
    threads that torch has, the best of some products. On a CPU the processor time is what counts, so that other work on
    the machine does not make the device look slow (and the training that MFU describes fast).
    """
    if device.type == "cuda":
        for name, rate in STATED_FLOPS.items():
            if name in torch.cuda.get_device_name(device):
                return {"value": rate, "source": "stated", "dtype": "bfloat16"}
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    size = 8192 if device.type == "cuda" else 1024
    a = torch.randn(size, size, device=device, dtype=dtype)
    threads = torch.get_num_threads()
    clock = (lambda: time.process_time() / threads) if device.type == "cpu" else time.perf_counter
    best = float("inf")
    for _ in range(6):
        synchronise(device)
        begun = clock()
        a @ a
        synchronise(device)
        best = min(best, clock() - begun)
    return {"value": 2 * size**3 / best, "source": "measured", "dtype": str(dtype).removeprefix("torch.")}


def peak_memory(device: torch.device) -> int:
    """Bytes: the allocator's peak on a GPU, else the largest resident size of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that a tensor did not fit in memory (torch raises a plain RuntimeError on the CPU)."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "allocate memory" in str(error)


def keep_freed_memory() -> None:
    """Have glibc keep large freed blocks for the next batch instead of returning them to the kernel.

    The kernel zeroes each page again when it is taken back. On one CPU thread this takes about 10 % off a training step. Does nothing elsewhere.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            trim_threshold, mmap_threshold = -1, -3  # malloc.h
            libc.mallopt(mmap_threshold, 1 << 30)
            libc.mallopt(trim_threshold, (1 << 31) - 1)


@contextlib.contextmanager
def nondeterministic_ops() -> Iterator[set[str]]:
    """Collect the names of the block's operations that torch has no deterministic implementation of on their device."""
    found: set[str] = set()
    # torch.use_deterministic_algorithms does the same, and imports the compiler for it: seconds
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield found
    finally:
        torch.set_deterministic_debug_mode(before)
    for warning in caught:
        if match := re.match(r"(\S+) does not have a deterministic implementation", str(warning.message)):
            found.add(match.group(1))
