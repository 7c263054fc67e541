"""Learning rates as pure functions of the position, so that a schedule has no state to save."""

from __future__ import annotations

import math
from collections.abc import Callable


def warmup_rate(step: int, peak: float, warmup: int) -> float:
    """ESPnet's `warmuplr` at step 1, 2, ...: peak * warmup^0.5 * min(step^-0.5, step * warmup^-1.5).

    It rises linearly to `peak` at step `warmup` and falls with the inverse square root after it
    (https://github.com/espnet/espnet/blob/master/espnet2/schedulers/warmup_lr.py).
    """
    return peak * warmup**0.5 * min(step**-0.5, step * warmup**-1.5)


def cosine_rate(epoch: int, peak: float, epochs: int) -> float:
    """From `peak` towards 0, constant within an epoch (1, 2, ...): torch's `CosineAnnealingLR` stepped per epoch."""
    return 0.5 * peak * (1 + math.cos(math.pi * (epoch - 1) / epochs))


# name in the config -> rate(step, epoch, peak, warmup, epochs); step counts optimiser steps, this one included
SCHEDULES: dict[str, Callable[[int, int, float, int, int], float]] = {
    "warmup": lambda step, epoch, peak, warmup, epochs: warmup_rate(step, peak, warmup),
    # with a linear rise over the first `warmup` steps (1: none)
    "cosine_per_epoch": lambda step, epoch, peak, warmup, epochs: (
        cosine_rate(epoch, peak, epochs) * min(1.0, step / warmup)
    ),
    "constant": lambda step, epoch, peak, warmup, epochs: peak,
}

# those whose rates are the same whatever `epochs` is: a training can be continued to more
FREE_OF_EPOCHS = ("warmup", "constant")
