"""Many comparisons at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values (Scandinavian Journal of Statistics 6, 1979), in the order given.

    The i-th smallest of n is multiplied by n - i (i from 0) and made no smaller than those before it, at most 1. NaN
    (a test that could not be made) stays NaN and does not count.
    """
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(p), np.nan)
    order = [i for i in np.argsort(p, kind="stable") if not np.isnan(p[i])]
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p[i]))
        adjusted[i] = largest
    return adjusted.tolist()
