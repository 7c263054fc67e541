"""Random numbers that depend on where they are used, not on what ran before.

Every random draw of a training is seeded by its purpose and position (seed, epoch, batch), so the position of the
sampler is the whole state of all generators: a run that resumes at batch i of epoch e draws what the uninterrupted run
drew there, without replaying anything.
"""

from __future__ import annotations

import random

import numpy as np
import torch

from geomix.seeds import derive_seed


def generator(*parts: int | str) -> torch.Generator:
    """A CPU generator seeded by `parts`: the same draws whatever device the results go to."""
    return torch.Generator().manual_seed(derive_seed(*parts))


def seed_all(*parts: int | str) -> None:
    """Seed the global generators of Python, NumPy and torch (every device): dropout and whatever else a model draws."""
    seed = derive_seed(*parts)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 - a model's code may use the global generator
    torch.manual_seed(seed)
