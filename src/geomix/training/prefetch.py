"""Batches made early by a thread, so that the device does not wait for them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from geomix.training.task import Batch


def prefetch(batches: Sequence[Batch], start: int = 0, ahead: int = 2) -> Iterator[tuple[Batch, float]]:
    """Batches from `start` on, made up to `ahead` early by a thread, each with the seconds that were waited for it."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
    try:
        pending = deque(pool.submit(batches.__getitem__, i) for i in range(start, min(start + ahead, len(batches))))
        for index in range(start, len(batches)):
            begun = time.perf_counter()
            batch = pending.popleft().result()
            waited = time.perf_counter() - begun
            if index + ahead < len(batches):
                pending.append(pool.submit(batches.__getitem__, index + ahead))
            yield batch, waited
    finally:
        pool.shutdown(cancel_futures=True)
