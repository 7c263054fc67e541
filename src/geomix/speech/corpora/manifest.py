"""A user's own corpus as tables: `<path>/<split>.tsv` with the columns id, speaker, path and text, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.speech.corpora.faults import Faults
from geomix.speech.manifest import Recording, read_lines

COLUMNS = ("id", "speaker", "path", "text")


def listings(corpus: Mapping[str, Any], split: str) -> list[Path]:
    """The table of one split."""
    return [Path(corpus["path"]) / f"{split}.tsv"]


def read_split(corpus: Mapping[str, Any], split: str, faults: Faults) -> list[Recording]:
    """Recordings of one table, sorted by id; further columns are ignored, relative paths start at the table's folder.

    A line is split at its tabs alone: quotes belong to the text.
    """
    (table,) = listings(corpus, split)
    recordings: dict[str, Recording] = {}
    with faults.catch("unreadable text file" if table.exists() else "missing file"):
        header, *lines = read_lines(table, "correct path or the split's name in the config")
        columns = header.rstrip("\r").split("\t")
        if lacking := [column for column in COLUMNS if column not in columns]:
            faults.add(
                "bad line", f"{table}: no column {lacking[0]!r} in its header: it needs {', '.join(COLUMNS)} with tabs"
            )
            return []
        where = [columns.index(column) for column in COLUMNS]
        for number, line in enumerate(lines, 2):
            if not line.strip():
                continue
            fields = line.split("\t")
            if len(fields) != len(columns):
                faults.add(
                    "bad line", f"{table}: line {number} has {len(fields)} fields instead of {len(columns)}: mend it"
                )
                continue
            utterance_id, speaker, path, text = (fields[i].strip() for i in where)
            if utterance_id in recordings:
                faults.add("id twice", f"{table}: id {utterance_id} is there twice: remove one of its lines")
                continue
            path = str((table.parent / path).absolute())
            recordings[utterance_id] = Recording(utterance_id, speaker, path, " ".join(text.split()), str(table))
    return [recordings[utterance_id] for utterance_id in sorted(recordings)]
