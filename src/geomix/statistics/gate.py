"""The gate: has the baseline reached its target?

A target that names the source of its number is a published one, and reaching it is parity; any other is a target of our
own, and is called so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PARITY, OWN = "parity", "target of our own"


@dataclass(frozen=True)
class GateVerdict:
    """Whether the target was reached, and the sentence that says so."""

    passed: bool
    sentence: str


def aim_of(sources: Mapping[str, str | None]) -> str:
    """What reaching targets is called: `parity` where each names a source, else `target of our own`; sources by set."""
    return PARITY if sources and all(sources.values()) else OWN


def gate_verdict(
    measured: Mapping[str, float],
    target: Mapping[str, float],
    tolerance: Mapping[str, float],
    *,
    arm: str,
    sources: Mapping[str, str | None] | None = None,
    unit: str = "% WER",
) -> GateVerdict:
    """Compare measured errors with targets, set by set (all in `unit`); `sources` say where each target's number is published.

    One-sided: a set passes when its error is at most target + tolerance, so better than the target passes. All sets
    that have a target must pass; one without a measurement or a tolerance is a `ValueError`.
    """
    if not target:
        raise ValueError("the gate has no target: name one for at least one set")
    parts, passed = [], True
    for name, aim in target.items():
        for what, table in (("measured value", measured), ("tolerance", tolerance)):
            if name not in table:
                raise ValueError(f"the gate has no {what} for {name}: it has a target, so give one")
        over = measured[name] - aim - tolerance[name]
        # 10.1 <= 9.8 + 0.3 must hold, whatever binary fractions make of it
        good = over <= 1e-9
        passed &= good
        parts.append(
            f"{measured[name]:.2f} {unit} on {name} (target {aim:g} + {tolerance[name]:g}"
            + ("" if good else f", missed by {over:.2f}")
            + ")"
        )
    outcome = "reached" if passed else "not reached"
    aim = aim_of({name: (sources or {}).get(name) for name in target})
    return GateVerdict(passed, f"{aim} {outcome}: {arm} has {' and '.join(parts)}")


def range_verdict(
    measured: float, low: float | None, high: float | None, *, arm: str, corpus: str, source: str | None = None
) -> GateVerdict:
    """Compare a validation perplexity with a range whose ends count as inside; an end that is None is none.

    Without both ends there is nothing to reach: the verdict has passed and says that no number is known for `corpus`.
    """
    what = f"{arm} has a validation perplexity of {measured:.1f}"
    if low is None and high is None:
        return GateVerdict(True, f"{what}; there is no published number for {corpus}")
    below, above = low is not None and measured < low, high is not None and measured > high
    kind, bounds = ("published range", "published bound") if source else ("target", "target")
    if low is None:
        aimed = f"{bounds} at most {high:g}"
    elif high is None:
        aimed = f"{bounds} at least {low:g}"
    else:
        aimed = f"{kind} {low:g} to {high:g}"
    outcome = f"not reached, {'above' if above else 'below'} it" if below or above else "reached"
    return GateVerdict(not (below or above), f"{what}, {aimed}: {aim_of({'valid': source})} {outcome}")
