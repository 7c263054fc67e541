"""The gate of a study: measuring its target (which always succeeds) and passing it (which may not)."""

from __future__ import annotations

import csv
import io
import os
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_object, write_json, write_text
from geomix.statistics.targets import chained, seeds_named, short_aim
from geomix.studies.base import Kind
from geomix.training.results import Trained


def measure_anchor(
    kind: Kind, folder: str | os.PathLike, gate: Mapping[str, Any] | None, corpus: str = ""
) -> dict[str, Any]:
    """Measure the gate's own arm against its targets; write `<folder>/anchor.json` and return it.

    `gate` is the configuration's: arm, seeds, mode, fallback, track where the study has tracks, and the targets that the kind's
    metric judges; `corpus` is the name of the data. A measured value is the mean over the gate's seeds. The file has what names the trainings, what the metric
    says of the targets, passed and sentence: where `passed` is false the gate's fallback, if there is one, is to be trained.
    """
    anchor = _measure(kind, Path(folder), _there(gate, folder), corpus)
    write_json(Path(folder) / "anchor.json", anchor)
    return anchor


def measure_parity(
    kind: Kind, folder: str | os.PathLike, gate: Mapping[str, Any] | None, corpus: str = ""
) -> dict[str, Any]:
    """Measure the gate's arm, and its fallback where that arm missed, against their targets; write `<folder>/parity.json`.

    `gate` is as `measure_anchor` takes it. parity.json has what anchor.json has and fallback (the same of the fallback;
    null where it was not needed), mode and anchor. `passed` says whether the gate's own arm reached its target, `anchor`
    names the arm that did (the fallback's where only that one did, null for none).
    """
    folder, gate = Path(folder), _there(gate, folder)
    measured = _measure(kind, folder, gate, corpus)
    fallback = None
    if not measured["passed"] and gate.get("fallback"):
        fallback = _measure(kind, folder, gate["fallback"], corpus)
    reached = [anchor["arm"] for anchor in (measured, fallback) if anchor and anchor["passed"]]
    parity = {**measured, "fallback": fallback, "anchor": reached[0] if reached else None, "mode": gate["mode"]}
    parity["sentence"] = chained([anchor["sentence"] for anchor in (measured, fallback) if anchor], parity)
    write_json(folder / "parity.json", parity)
    refresh_page(folder, parity)
    return parity


def _there(gate: Mapping[str, Any] | None, folder: str | os.PathLike) -> Mapping[str, Any]:
    if gate is None:
        raise UserError(f"{folder}: its study has no gate (gate: null), so there is no target to measure: name one")
    return gate


def _measure(kind: Kind, folder: Path, anchor: Mapping[str, Any], corpus: str) -> dict[str, Any]:
    track, arm, seeds = anchor.get("track", ""), anchor["arm"], list(anchor["seeds"])
    trainings = [Trained(folder / track / arm / f"seed{seed}", track, arm, seed) for seed in seeds]
    measured = {
        name: statistics.fmean(kind.metric.value(trained, name) for trained in trainings)
        for name in kind.metric.judged_sets(anchor)
    }
    judged = kind.metric.judge(anchor, measured, corpus)
    named = ({"track": track} if track else {}) | {"arm": arm, "seeds": seeds}
    return {**named, **judged.said, "passed": judged.verdict.passed, "sentence": judged.verdict.sentence}


def pass_gate(path: str | os.PathLike) -> str:
    """Return the sentence of a parity.json that opens the gate; otherwise raise it as a `UserError` with the cure.

    The gate opens when the arm or its fallback reached its target, and in any case in the mode `record`. When it stays
    shut, final pages that an earlier pass left beside the file are made to say so (`refresh_page`).
    """
    parity = read_object(path, "sentence", "anchor", "mode")
    if not parity["anchor"] and parity["mode"] != "record":
        page = refresh_page(Path(path).parent, parity)
        raise UserError(
            f"{path}: {parity['sentence']}: gated arms wait until it is reached: find what the baseline's training "
            f"lacks, or set gate.mode to record to go on with every table marked '{short_aim(parity)} not reached'"
            + (f" ({page})" if page else "")
        )
    return parity["sentence"]


def refresh_page(folder: str | os.PathLike, parity: Mapping[str, Any]) -> str:
    """Make the final tables of a run, where they stand, say what its gate measured last; the speech and the language study's.

    The first line that speaks of the gate is replaced, and a sentence says that the rest is older; each line of tables.csv
    is marked. Nothing else is read: what the tables are made of may be about to change. Returns a clause that says what
    was done, empty where no final tables stand. A report after the gate is passed writes the page anew.
    """
    page, table = Path(folder) / "tables.md", Path(folder) / "tables.csv"
    if not page.is_file():
        return ""
    mark = "" if parity["anchor"] else f"{short_aim(parity)} not reached"
    if not mark and parity["sentence"] in page.read_text(encoding="utf-8"):
        return ""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if STALE not in line]
    first = next((number for number, line in enumerate(lines) if _GATE_LINE.search(line)), 1)
    lines[first : first + 1] = [
        f"**Gate: {parity['sentence']}** ({seeds_named(parity['seeds'])}).",
        f"**{STALE} ({mark}).**",
    ]
    write_text(page, "\n".join(lines) + "\n")
    if mark and table.is_file():
        _mark(table, mark)
    return f"{page}, made before, now says so"


# the line of a page that names the trainings of the gate, of either study
_GATE_LINE = re.compile(r"\((track \w+, )?seeds? \d")
STALE = "What follows was made before that measurement"


def _mark(table: Path, mark: str) -> None:
    """Put `mark` into the notes of a table's lines."""
    with open(table, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if mark not in row["note"].split("; "):
            row["note"] = "; ".join(filter(None, (mark, row["note"])))
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else ["note"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(table, out.getvalue())
