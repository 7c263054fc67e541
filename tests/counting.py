"""What work costs, as a count that no busy machine changes: tests assert this and never the clock."""

from __future__ import annotations

import sys
from collections.abc import Callable


def calls(work: Callable[[], object]) -> int:
    """Calls of Python and C functions that `work()` makes in this thread: a loop over elements shows, an array operation is one."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
