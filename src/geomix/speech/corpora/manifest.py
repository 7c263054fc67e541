"""A user's own corpus as tables: `<path>/<split>.tsv` with the columns id, speaker, path and text, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.speech.manifest import Recording, read_lines

_COLUMNS = ("id", "speaker", "path", "text")


def listings(corpus: Mapping[str, Any], split: str) -> list[Path]:
    """The table of one split."""
    return [Path(corpus["path"]) / f"{split}.tsv"]


def read_split(corpus: Mapping[str, Any], split: str) -> list[Recording]:
    """Recordings of one table, sorted by id; further columns are ignored, relative paths start at the table's folder.

    A line is split at its tabs alone: quotes belong to the text.
    """
    (table,) = listings(corpus, split)
    header, *lines = read_lines(table, "correct path or the split's name in the config")
    columns = header.rstrip("\r").split("\t")
    for column in _COLUMNS:
        if column not in columns:
            raise UserError(f"{table}: no column {column!r} in its header: it needs {', '.join(_COLUMNS)} with tabs")
    where = [columns.index(column) for column in _COLUMNS]
    recordings: dict[str, Recording] = {}
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != len(columns):
            raise UserError(f"{table}: line {number} has {len(fields)} fields instead of {len(columns)}: mend it")
        utterance_id, speaker, path, text = (fields[i].strip() for i in where)
        if utterance_id in recordings:
            raise UserError(f"{table}: id {utterance_id} is there twice: remove one of its lines")
        if not text:
            raise UserError(f"{table}: the transcript of {utterance_id} is empty: write it or remove the line")
        path = str((table.parent / path).absolute())
        recordings[utterance_id] = Recording(utterance_id, speaker, path, " ".join(text.split()), str(table))
    return [recordings[utterance_id] for utterance_id in sorted(recordings)]
