"""What the page says of a study as a whole: verdicts, rates with their intervals, curves, pairs by block, provenance."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_objects
from geomix.report.text import interval_text
from geomix.training.progress import LOG, read_log
from geomix.training.record import RunRecord, plain_part
from geomix.training.results import WER, PairBlock, Study, Trained
from geomix.training.store import User, stored

CURVES = ("train_loss", "dev_loss", "dev_cer", "dev_wer", "dev_perplexity")
STEPS = 200  # points of a curve by updates, at most
# of a record: what is told elsewhere on the page, costs above all
LEFT_OUT = {
    "unknown_words", "dropped", "best_epochs", "perplexity", "padding", "attempts", "wall_seconds", "mfu", "data_wait",
    "peak_memory_bytes", "device_flops", "flops_per_audio_second", "audio_seconds_per_second", "flops_per_token",
    "tokens_per_second",
}  # fmt: skip
EACH_ITS_OWN = ("finished", "settings_hash")  # differ between trainings whatever the arms are


def study_data(study: Study, place: Path, *, partial: bool) -> dict[str, Any]:
    """The data of overview and mixers, for data.js.

    `place` holds tables.csv. Rates are those of tables.csv, differences those of comparisons.json; nothing is measured anew.
    """
    recorded = [t for t in study.trainings if (t.folder / "record.json").is_file()]
    running = _running(study) if partial else {}
    missing = [t.folder / "record.json" for t in study.trainings if t not in recorded]
    if missing and not partial:
        raise UserError(
            f"{missing[0]}: no such file, and the page shows it: run the training step, or ask for the partial page"
        )
    path = study.folder / "comparisons.json"
    contrasts = read_objects(path, "a", "b", "set", "planned", "verdict") if path.is_file() and not partial else []
    return {
        "kind": study.settings["corpus"].get("kind"),
        "metric": study.metric,
        "arms": study.arms,
        "tracks": study.tracks,
        "sets": study.sets,
        "verdicts": [_verdict(study, entry) for entry in contrasts if entry["planned"]],
        "rates": _rates(study, place / "tables.csv"),
        "targets": {t["set"]: t["wer"] for t in (study.gate or {}).get("targets", [])},
        "contrasts": [_contrast(entry) for entry in contrasts],
        "trainings": [
            _training(t, running.get(t.folder)) for t in study.trainings if t in recorded or t.folder in running
        ],
        "provenance": _provenance(study, recorded),
    }


def _verdict(study: Study, entry: Mapping[str, Any]) -> dict[str, str]:
    """A contrast as a sentence, and what it comes to: tie, better, worse (of arm a), none."""
    where = f"on {entry['set']}" + (f" ({entry['track']})" if entry.get("track") else "")
    if study.metric == WER:
        measured = f"{entry['difference']:+.2f} points of WER {interval_text(entry['low'], entry['high'])}"
        other = interval_text(entry["t_low"], entry["t_high"])
        measured += f", t {other}" if entry["t_low"] is not None else ""
    else:
        ends = f" [{entry['low']:.3f}, {entry['high']:.3f}]" if "low" in entry else ""
        measured = f"{entry['ratio']:.3f} times the perplexity{ends}"
    verdict = {"a better": f"{entry['a']} better", "b better": f"{entry['b']} better"}.get(
        entry["verdict"], entry["verdict"]
    )
    outcome = {f"{entry['a']} better": "better", f"{entry['b']} better": "worse", "tie": "tie"}.get(verdict, "none")
    seeds = f"{entry['seeds_a']} + {entry['seeds_b']} seeds"
    selected = entry["set"] not in study.test_sets
    note = f"{seeds}; epochs were selected on this set" if selected else seeds
    return {"a": entry["a"], "b": entry["b"], "where": where, "measured": measured, "verdict": verdict, "outcome": outcome, "note": note}  # fmt: skip


def _contrast(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the side by side view says of a pair of arms."""
    keys = ("track", "set", "a", "b", "difference", "low", "high", "t_low", "t_high", "verdict", "planned")
    return {key: entry.get(key) for key in keys}


def _rates(study: Study, path: Path) -> list[dict[str, Any]]:
    """Rows of tables.csv as numbers: {track, arm, set, value, low, high}; of perplexities, a row a split, with the spread of seeds."""
    if not path.is_file():
        raise UserError(f"{path}: no such file, and the page shows it: run the report step first")
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    number = lambda text: float(text) if text else None
    if study.metric == WER:
        return [
            {"track": r["track"], "arm": r["arm"], "set": r["set"], "value": number(r["wer"])}
            | {"low": number(r["wer_low"]), "high": number(r["wer_high"])}
            for r in rows
            if r["wer"]
        ]
    return [
        {"track": "", "arm": r["arm"], "set": split, "value": number(r[split])}
        | {"seeds": [round(v, 2) for v in study.perplexities(r["arm"], split)]}
        for r in rows
        for split in study.sets
    ]


def _running(study: Study) -> dict[Path, list[dict[str, Any]]]:
    """Folder of a training that has no record yet -> its log so far, which lies in the store until it is done."""
    root = next((place for place in study.folder.absolute().parents if (place / "state").is_dir()), None)
    claimed = {user: state.folder / LOG for state in (stored(root / "state") if root else ()) for user in state.users}
    found = {}
    for t in study.trainings:
        path = claimed.get(User(study.run, t.track, t.arm, t.seed))
        if path and path.is_file() and not (t.folder / "record.json").is_file():
            found[t.folder] = read_log(path)
    return found


def _training(trained: Trained, so_far: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """One training: its name, its curves, and its pairs block by block; of one that runs, from its log `so_far`."""
    log, curves = trained.log if so_far is None else so_far, {}
    epochs, updates = ([line for line in log if line.get("kind") == kind] for kind in ("epoch", "step"))
    for name in CURVES:
        points = [[line["epoch"], _short(line[name])] for line in epochs if _is_number(line.get(name))]
        if points:
            curves[name] = points
    if len(next(iter(curves.values()), [])) < 2:  # one epoch is no curve: the loss by updates is
        steps = [[line["update"], _short(line["loss"])] for line in updates if _is_number(line.get("loss"))]
        curves = {"loss": steps[:: len(steps) // STEPS + 1]} if len(steps) > 1 else {}
    diagnostics = trained.diagnostics
    return {
        "key": f"{trained.track}/{trained.arm}/{trained.seed}",
        "track": trained.track,
        "arm": trained.arm,
        "seed": trained.seed,
        "running": so_far is not None,
        "curves": curves,
        "blocks": {
            when: [_block(block) for block in blocks]
            for when, blocks in (("start", diagnostics.start), ("end", diagnostics.end))
            if blocks
        },
    }


def _block(block: PairBlock) -> dict[str, Any]:
    return {
        "block": block.block,
        "sine": [_short(block.sine.get(q)) for q in ("0.05", "0.25", "0.5", "0.75", "0.95")],
        "gate": _short(block.mean_gate),
        "narrow": _short(block.narrow_share),
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: float | None) -> float | None:
    """A number with five digits: a picture needs no more."""
    return None if value is None else float(f"{value:.5g}")


def _provenance(study: Study, trainings: list[Trained]) -> dict[str, Any]:
    """What each arm was made with, a row a key of its records and a column an arm; `differs` where the arms do not agree.

    Seeds of an arm that do not agree are listed in one cell.
    """
    columns = [place for place in dict.fromkeys((t.track, t.arm) for t in trainings)]
    found = [dict(_flat(_told(t.record))) for t in trainings]
    rows = []
    for key in dict.fromkeys(key for values in found for key in values):
        cells = []
        for column in columns:
            of = [v.get(key, "-") for v, t in zip(found, trainings, strict=True) if (t.track, t.arm) == column]
            cells.append(", ".join(dict.fromkeys(of)))
        rows.append({"key": key, "cells": cells, "differs": len(set(cells)) > 1 and key not in EACH_ITS_OWN})
    return {"columns": [" / ".join(filter(None, column)) for column in columns], "rows": rows}


def _told(record: RunRecord) -> dict[str, Any]:
    """The record's entries, without what names the training and what the page tells elsewhere."""
    subject = plain_part(record.subject)
    named = {key: subject[key] for key in ("parameters", "unmatched", "gated", "settings_hash", "data", "settings")}
    told = plain_part(record.origin) | plain_part(record.course) | plain_part(record.domain) | named
    return {key: value for key, value in told.items() if key not in LEFT_OUT}


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, text) of everything in a record."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, float):
        yield name, f"{value:.6g}"
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
