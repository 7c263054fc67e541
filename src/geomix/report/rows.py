"""A line of a speech study's tables.csv: an arm on a set, or a published checkpoint that was decoded here."""

from __future__ import annotations

from dataclasses import dataclass

from geomix.report.columns import Column, fixed, thousands
from geomix.report.text import interval_text
from geomix.statistics import Interval
from geomix.training.results import Trained


@dataclass(frozen=True)
class Row:
    """Trainings (a seed each) pooled. Rates in %, `speakers` x seeds resampled for the ends; None: not measured.

    `words` are the set's reference words; substitutions, insertions and deletions are means over seeds, so that
    wer = 100 (sub + ins + del) / words. `mark` is what every row of the study must carry, `notes` what this one must.
    """

    corpus: str
    track: str
    arm: str
    set: str
    seeds: int
    speakers: int | None = None
    params: int | None = None
    unmatched: bool | None = None
    wer: Interval | None = None
    cer: float | None = None
    words: int | None = None
    substitutions: float | None = None
    insertions: float | None = None
    deletions: float | None = None
    mark: str = ""
    notes: tuple[str, ...] = ()
    trained: tuple[Trained, ...] = ()


def rate(interval: Interval) -> str:
    """`12.34 [11.00, 13.68]`."""
    return f"{interval.estimate:.2f} {interval_text(interval.low, interval.high, '')}"


def _count(value: float | None) -> str:
    """A count, or a mean of counts with one decimal."""
    return "" if value is None else str(int(value)) if float(value).is_integer() else f"{value:.1f}"


def _end(name: str, end: str, title: str = "") -> Column:
    return Column(name, lambda row: row.wer and getattr(row.wer, end), title, fixed(2), fixed(2))


COLUMNS = (
    Column("corpus", lambda row: row.corpus),
    Column("track", lambda row: row.track),
    Column("arm", lambda row: row.arm),
    Column("set", lambda row: row.set),
    Column("seeds", lambda row: row.seeds),
    Column("speakers", lambda row: row.speakers),
    Column("params", lambda row: row.params, "parameters", thousands),
    Column("unmatched", lambda row: row.unmatched, csv=lambda value: "" if value is None else str(value).lower()),
    _end("wer", "estimate", "WER %"),
    _end("wer_low", "low"),
    _end("wer_high", "high"),
    Column("cer", lambda row: row.cer, "CER %", fixed(2), fixed(2)),
    Column("words", lambda row: row.words, show=thousands),
    Column("substitutions", lambda row: row.substitutions, "sub", _count, _count),
    Column("insertions", lambda row: row.insertions, "ins", _count, _count),
    Column("deletions", lambda row: row.deletions, "del", _count, _count),
    Column("note", lambda row: "; ".join(filter(None, (row.mark, *row.notes)))),
    # on pages alone, whose titles carry the mark
    Column("remarks", lambda row: "; ".join(row.notes), "note"),
    Column("rate", lambda row: row.wer, "WER %", rate),
)
CSV = tuple(column.name for column in COLUMNS[:-2])
