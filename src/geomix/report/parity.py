"""Parity with a published number: measuring it (which always succeeds) and passing the gate (which may not)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.statistics import gate_verdict


def measure_parity(folder: str | os.PathLike, gate: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the gate's arm, and its fallback's if there is one, against their targets; write `<folder>/parity.json`.

    `gate` is the configuration's: {track, arm, seeds, targets: [{set, wer, tolerance}], mode, fallback}. The measured
    WER of a set is the corpus WER, its mean where the gate names several seeds. `passed` says whether the gate's own
    arm reached its target, `anchor` names the arm that did (the fallback's where only that one did, null for none).
    """
    folder = Path(folder)
    measured = _measure(folder, gate)
    fallback = _measure(folder, gate["fallback"]) if gate.get("fallback") else None
    sentence, anchor = measured["sentence"], gate["arm"] if measured["passed"] else None
    if not anchor and fallback:
        sentence += f"; fallback: {fallback['sentence']}"
        if fallback["passed"]:
            anchor = fallback["arm"]
            sentence += f": anchored on {anchor}"
    parity = {**measured, "fallback": fallback, "anchor": anchor, "mode": gate["mode"], "sentence": sentence}
    write_json(folder / "parity.json", parity)
    return parity


def _measure(folder: Path, anchor: Mapping[str, Any]) -> dict[str, Any]:
    targets = {t["set"]: t["wer"] for t in anchor["targets"]}
    tolerance = {t["set"]: t["tolerance"] for t in anchor["targets"]}
    measured = {}
    for name in targets:
        rates = []
        for seed in anchor["seeds"]:
            path = folder / anchor["track"] / anchor["arm"] / f"seed{seed}" / "score" / f"{name}.json"
            rate = read_json(path).get("words", {}).get("rate")
            if rate is None:
                raise UserError(f"{path}: has no word error rate: score {name} against a reference that has words")
            rates.append(rate)
        measured[name] = sum(rates) / len(rates)
    verdict = gate_verdict(measured, targets, tolerance, arm=anchor["arm"])
    return {
        "track": anchor["track"],
        "arm": anchor["arm"],
        "seeds": list(anchor["seeds"]),
        "sets": list(targets),
        "target": targets,
        "tolerance": tolerance,
        "measured": measured,
        "passed": verdict.passed,
        "sentence": verdict.sentence,
    }


def trainings_measured(parity: Mapping[str, Any]) -> str:
    """Which trainings a parity.json speaks of: `track own, seed 0`."""
    return f"track {parity['track']}, {seeds_named(parity['seeds'])}"


def seeds_named(seeds: Sequence[int]) -> str:
    """`seed 0`, or `seeds 0, 1`."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def pass_gate(path: str | os.PathLike) -> str:
    """Return the sentence of a parity.json that opens the gate; otherwise raise it as a `UserError` with the cure.

    The gate opens when the arm or its fallback reached its target, and in any case in the mode `record`.
    """
    parity = read_json(path)
    if not parity["anchor"] and parity["mode"] != "record":
        raise UserError(
            f"{path}: {parity['sentence']}: gated arms wait until it is reached: find what the baseline's training "
            "lacks, or set gate.mode to record to go on with every table marked 'parity not reached'"
        )
    return parity["sentence"]
