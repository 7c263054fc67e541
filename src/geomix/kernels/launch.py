"""What every Triton launch needs: the right device, a cache that can be written, and tensors that are memory of that device."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor


def on_device_of(x: Tensor):
    """A context in which kernels are launched on x's device, whichever is the current one."""
    writable_cache()
    return torch.cuda.device(x.device) if x.device.type == "cuda" else contextlib.nullcontext()


def check_memory(what: str, *tensors: Tensor | None) -> None:
    """ValueError unless all tensors are memory of one GPU (or, under TRITON_INTERPRET=1, of the CPU).

    While torch.compile traces nothing is checked: there are no tensors yet.
    """
    if torch.compiler.is_compiling():
        return
    given = [x for x in tensors if x is not None]
    for x in given:
        if not launchable(x):
            kind = "the CPU (TRITON_INTERPRET is set)" if interpreted() else "a CUDA device"
            raise ValueError(f"{what} takes plain tensors on {kind}, got {type(x).__name__} on {x.device}.")
        if x.device != given[0].device:
            raise ValueError(f"{what} takes tensors on one device, got {given[0].device} and {x.device}.")


def launchable(x: Tensor) -> bool:
    """Whether a Triton kernel can read a tensor: plain strided memory of a GPU, or of the CPU under the interpreter."""
    plain = type(x) in (Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(x)
    return plain and x.layout == torch.strided and x.device.type == ("cpu" if interpreted() else "cuda")


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "y", "yes")


@lru_cache(maxsize=1)
def writable_cache() -> None:
    """Give Triton a folder of this process when its own cannot be written (a read-only or a missing home)."""
    place = os.environ.get("TRITON_CACHE_DIR")
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")
    folder = Path(place) if place else Path(home) / ".triton" / "cache"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except (OSError, ValueError):
        own = tempfile.mkdtemp(prefix="geomix-triton-")
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        os.environ["TRITON_CACHE_DIR"] = own
