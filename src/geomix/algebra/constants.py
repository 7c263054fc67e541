"""Tensors that outlive the call that makes them: tables, masks and indices that are cached on first use.

The first use may stand under `torch.inference_mode`, inside a fake-tensor mode or in a graph that is being compiled; what is
kept must serve every later use all the same, a training among them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

import torch

Made = TypeVar("Made")


def constant(make: Callable[..., Made]) -> Callable[..., Made]:
    """Decorate a function of hashable arguments: its result is made once, as ordinary tensors, and kept.

    Under inference mode the tensors are ordinary ones too, so that autograd may save them later. Inside a dispatch mode (fake
    tensors, tracing) nothing is kept: what is made there belongs to the mode. torch.compile takes the result as a constant.
    `make` must name its dtypes and devices: defaults belong to the caller's surroundings.
    """

    @lru_cache(maxsize=256)
    def kept(*key):
        with torch.inference_mode(False), torch.no_grad():
            return make(*key)

    @wraps(make)
    def get(*key):
        return make(*key) if torch._C._len_torch_dispatch_stack() else kept(*key)

    get.cache_clear = kept.cache_clear
    # what torch.compiler.assume_constant_result does, without importing the compiler: over a second in every process
    get._dynamo_marked_constant = True
    return get
