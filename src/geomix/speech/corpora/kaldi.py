"""Kaldi data folders: `<path>/<split>/` with wav.scp, text, utt2spk and segments (https://kaldi-asr.org/doc/data_prep.html)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.speech.corpora.faults import Faults
from geomix.speech.manifest import Recording, read_lines

TABLES = ("wav.scp", "text", "utt2spk", "segments")


def listings(corpus: Mapping[str, Any], split: str) -> list[Path]:
    """The tables of one data folder."""
    return [Path(corpus["path"]) / split / table for table in TABLES]


def read_split(corpus: Mapping[str, Any], split: str, faults: Faults) -> list[Recording]:
    """Recordings of one data folder, sorted by id.

    wav.scp names files, relative ones from the config's `audio_root` (default: the data folder), or commands that end in a
    pipe, which run in that folder and only with `allow_pipes`. With segments (utterance, recording, begin and end in
    seconds; an end of -1 is the recording's) wav.scp names whole recordings. Without utt2spk each utterance is a speaker.
    """
    folder = Path(corpus["path"]) / split
    audio_root = Path(corpus.get("audio_root") or folder).absolute()
    tables = {name: _read_table(folder / name, faults) for name in ("wav.scp", "text")}
    for name in ("utt2spk", "segments"):
        tables[name] = _read_table(folder / name, faults) if (folder / name).exists() else None
    if tables["utt2spk"] is None:
        faults.warn(
            "no speakers",
            f"{folder / 'utt2spk'}: is not there, so each utterance is a speaker of its own: intervals over speakers need it",
        )
        tables["utt2spk"] = {i: i for i in tables["text"]}
    cut = tables["segments"] is not None
    recordings = []
    for utterance_id in sorted({*tables["segments" if cut else "wav.scp"], *tables["text"]}):
        place = _place(folder, utterance_id, tables, faults)
        if place is None:
            continue
        source, start, end = place
        command = source.endswith("|")
        if command and not corpus.get("allow_pipes"):
            faults.add(
                "command for a recording",
                f"{folder / 'wav.scp'}: {utterance_id} is the command {source!r}: set corpus.allow_pipes: true to run such "
                "commands, or write its output to a file and name that",
            )
            continue
        path = str(audio_root) if command else str((audio_root / source).absolute())
        text = " ".join(tables["text"][utterance_id].split())
        recordings.append(
            Recording(
                utterance_id,
                tables["utt2spk"][utterance_id],
                path,
                text,
                str(folder / "text"),
                start,
                end,
                source[:-1].strip() if command else None,
            )
        )
    return recordings


def _place(
    folder: Path, utterance_id: str, tables: Mapping[str, Any], faults: Faults
) -> tuple[str, float, float | None] | None:
    """What wav.scp says of an utterance's recording, where the utterance begins there and where it ends (None: with it)."""
    wanted = [name for name in ("segments", "text", "utt2spk") if tables[name] is not None]
    for name in wanted if tables["segments"] is not None else ["wav.scp", *wanted]:
        if utterance_id not in tables[name]:
            faults.add(
                "tables that disagree",
                f"{folder / name}: no line for utterance {utterance_id}: add it, or remove it everywhere",
            )
            return None
    if tables["segments"] is None:
        return tables["wav.scp"][utterance_id], 0.0, None
    segment = tables["segments"][utterance_id]
    try:
        recording, start, end = segment.split()
        start, end = float(start), float(end)
        if not (math.isfinite(start) and start >= 0 and (end == -1 or start < end < math.inf)):
            raise ValueError
    except ValueError:
        faults.add(
            "bad line",
            f"{folder / 'segments'}: {utterance_id} has {segment!r}: write a recording, its begin and a later end in seconds",
        )
        return None
    if recording not in tables["wav.scp"]:
        faults.add(
            "tables that disagree",
            f"{folder / 'wav.scp'}: no line for recording {recording} of utterance {utterance_id}: add it",
        )
        return None
    return tables["wav.scp"][recording], start, None if end == -1 else end


def _read_table(path: Path, faults: Faults) -> dict[str, str]:
    """A Kaldi table: an id, white space, and the rest of the line."""
    table: dict[str, str] = {}
    with faults.catch("unreadable text file" if path.exists() else "missing file"):
        for line in read_lines(path, "a Kaldi data folder needs wav.scp and text"):
            if not line.strip():
                continue
            key, *rest = line.strip().split(maxsplit=1)
            if key in table:
                faults.add("id twice", f"{path}: id {key} is there twice: remove one of its lines")
                continue
            table[key] = rest[0] if rest else ""
    return table
