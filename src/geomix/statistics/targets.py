"""What pages, claims and the terminal say of a gate: its name, its outcome, where its numbers come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from geomix.statistics.gate import PARITY, aim_of, gate_verdict, range_verdict

NO_GATE = "no gate"


def sources_of(anchor: Mapping[str, Any]) -> dict[str, str | None]:
    """Set -> source of its target's number, None without one: of a gate or fallback of the configuration."""
    return {target["set"]: target.get("source") for target in anchor["targets"]}


def short_aim(parity: Mapping[str, Any]) -> str:
    """`parity` or `target`: the name of what a parity.json measured, for marks; one without sources is no parity."""
    sources = parity["sources"] if "sources" in parity else {"valid": parity.get("source")}
    return _short(sources)


def _short(sources: Mapping[str, str | None]) -> str:
    return PARITY if aim_of(sources) == PARITY else "target"


def outcome_mark(gate: Mapping[str, Any] | None, parity: Mapping[str, Any] | None) -> str:
    """What every table of a speech study carries in its title: empty when the gate's own arm reached its target."""
    if gate is None:
        return NO_GATE
    if parity is None:
        return f"{_short(sources_of(gate))} not measured"
    if parity["passed"]:
        return ""
    return f"anchored on {parity['anchor']}" if parity["anchor"] else f"{short_aim(parity)} not reached"


def gate_line(gate: Mapping[str, Any] | None, parity: Mapping[str, Any] | None) -> str:
    """The state of a speech study's gate in one line of Markdown, with the sources of its targets."""
    if gate is None:
        return "**No gate: no arm waited for the baseline to reach a target.**"
    if parity is None:
        return f"**Gate: {aim_of(sources_of(gate))} not measured yet.**"
    line = f"**Gate: {spoken(parity)}** ({trainings_measured(parity)}; mode {parity['mode']})."
    return line + named_sources(parity)


def named_sources(parity: Mapping[str, Any]) -> str:
    """` Targets: test-clean, SOURCE; ...` of a parity.json and of its fallback; empty where none names a source, or has no number."""
    named: dict[str, list[str]] = {}
    for anchor in (parity, parity.get("fallback") or {}):
        for name, source in anchor.get("sources", {}).items():
            if source:
                label = name if anchor is parity else f"{name} ({anchor['arm']})"
                named.setdefault(source, []).append(label)
    if parity.get("source") and (parity["low"], parity["high"]) != (None, None):
        named[parity["source"]] = ["valid"]
    parts = [f"{' and '.join(names)}, {source}" for source, names in named.items()]
    return f" Target{'s' if len(parts) > 1 else ''} from: {'; '.join(parts)}." if parts else ""


def spoken(parity: Mapping[str, Any]) -> str:
    """The sentence of a parity.json in today's words: one measured before targets named sources has none, so it is no parity."""
    if "sources" in parity or "source" in parity:
        return parity["sentence"]
    if "target" in parity:
        verdicts = [_verdict(anchor) for anchor in (parity, parity.get("fallback")) if anchor]
        return chained(verdicts, parity)
    bounds = parity.get("low"), parity.get("high")
    if bounds != (None, None):
        return range_verdict(parity["measured"], *bounds, arm=parity["arm"], corpus="").sentence
    return parity["sentence"]


def _verdict(anchor: Mapping[str, Any]) -> str:
    return gate_verdict(anchor["measured"], anchor["target"], anchor["tolerance"], arm=anchor["arm"]).sentence


def chained(sentences: Sequence[str], parity: Mapping[str, Any]) -> str:
    """The gate's sentence and, where its own arm missed, its fallback's; `parity` has passed and anchor."""
    own, *fallback = sentences
    if parity["passed"] or not fallback:
        return own
    anchored = f": anchored on {parity['anchor']}" if parity["anchor"] else ""
    return f"{own}; fallback: {fallback[0]}{anchored}"


def trainings_measured(parity: Mapping[str, Any]) -> str:
    """Which trainings a parity.json speaks of: `track own, seed 0`."""
    return f"track {parity['track']}, {seeds_named(parity['seeds'])}"


def seeds_named(seeds: Sequence[int]) -> str:
    """`seed 0`, or `seeds 0, 1`."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
