"""What a study expected, and how it came out: judged.json, which the compare step writes, as a table."""

from __future__ import annotations

from geomix.files import read_objects
from geomix.report.columns import Column, Table
from geomix.training.results import JUDGED, Study

COLUMNS = (
    Column("expected before the run", lambda e: e["text"]),
    Column("as a predicate", lambda e: f"`{e['holds']}`" if e["holds"] else "-"),
    Column("track", lambda e: e.get("track") or "-"),
    Column("set", lambda e: e.get("set") or "-"),
    Column("outcome", lambda e: e["outcome"]),
)


def expected_table(study: Study) -> Table:
    """Each expectation of a study with its outcome by track and test set; one without a predicate is `not judged`."""
    path = study.folder / JUDGED
    judged = read_objects(path, "text", "holds", "outcome") if path.is_file() else []
    rows = []
    for expected in study.hypothesis:
        found = [e for e in judged if (e["text"], e["holds"]) == (expected["text"], expected["holds"])]
        rows += found or [{**expected, "outcome": "not judged"}]
    columns = [c for c in COLUMNS if c.name != "track" or any(row.get("track") for row in rows)]
    return Table.of(columns, rows)
