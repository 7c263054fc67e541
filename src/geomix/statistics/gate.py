"""The gate: has the baseline reproduced the published number?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class GateVerdict:
    """Whether parity was reached, and the sentence that says so."""

    passed: bool
    sentence: str


def gate_verdict(
    measured: Mapping[str, float], target: Mapping[str, float], tolerance: Mapping[str, float], *, arm: str
) -> GateVerdict:
    """Compare measured WERs with targets, set by set (all in %).

    One-sided: a set passes when its WER is at most target + tolerance, so better than the target passes. All sets
    that have a target must pass; one without a measurement or a tolerance is a `ValueError`.
    """
    if not target:
        raise ValueError("the gate has no target: name a WER for at least one set")
    parts, passed = [], True
    for name, aim in target.items():
        for what, table in (("measured WER", measured), ("tolerance", tolerance)):
            if name not in table:
                raise ValueError(f"the gate has no {what} for {name}: it has a target, so give one")
        over = measured[name] - aim - tolerance[name]
        # 10.1 <= 9.8 + 0.3 must hold, whatever binary fractions make of it
        good = over <= 1e-9
        passed &= good
        parts.append(
            f"{measured[name]:.2f} % WER on {name} (target {aim:g} + {tolerance[name]:g}"
            + ("" if good else f", missed by {over:.2f}")
            + ")"
        )
    outcome = "reached" if passed else "not reached"
    return GateVerdict(passed, f"parity {outcome}: {arm} has {' and '.join(parts)}")
