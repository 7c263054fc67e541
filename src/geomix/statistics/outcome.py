"""What an interval says of two systems: the words `a better`, `tie`, `no interval`, for every metric."""

from __future__ import annotations

from collections.abc import Iterable

TIE, NO_INTERVAL = "tie", "no interval"


def side_of(low: float, high: float, null: float = 0.0) -> int:
    """-1 for an interval below `null`, 1 for one above it, 0 for one that holds it or has no ends (NaN)."""
    return int(low > null) - int(high < null)


def outcome(intervals: Iterable[tuple[float, float]], names: tuple[str, str] = ("a", "b"), *, null: float = 0.0) -> str:
    """`NAME better` where all intervals of the difference a - b (or ratio a / b, `null` 1) lie on one side, else `tie`.

    Less is better. Without any interval: `no interval`.
    """
    sides = {side_of(low, high, null) for low, high in intervals}
    if not sides:
        return NO_INTERVAL
    side = sides.pop() if len(sides) == 1 else 0
    if not side:
        return TIE
    return f"{names[0] if side < 0 else names[1]} better"


def ratio_method(quantity: str, plural: str) -> str:
    """How two arms are compared by the ratio of a quantity that each seed has one of (`t_interval_log_perplexity`), in words."""
    return (
        f"difference of mean ln({quantity}) over seeds with its 95 % t-interval, degrees of freedom min(n_a, n_b) - 1 (the "
        f"article's), Welch's beside it; shown as the ratio of {plural}; a tie where the interval of ratios holds 1"
    )
