"""Random numbers that depend on where they are used, not on what ran before.

Every random draw of a training is seeded by its purpose and position (seed, epoch, batch), so the position of the
sampler is the whole state of all generators: a run that resumes at batch i of epoch e draws what the uninterrupted run
drew there, without replaying anything.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and on nothing else (BLAKE2b of their text)."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(*parts: int | str) -> torch.Generator:
    """A CPU generator seeded by `parts`: the same draws whatever device the results go to."""
    return torch.Generator().manual_seed(derive_seed(*parts))


def seed_all(*parts: int | str) -> None:
    """Seed the global generators of Python, NumPy and torch (every device): dropout and whatever else a model draws."""
    seed = derive_seed(*parts)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 - a model's code may use the global generator
    torch.manual_seed(seed)
