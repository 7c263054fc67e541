"""Tables of a report: columns declared once, rows in a pandas frame, from which the CSV file, the page and the terminal are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geomix.report.text import aligned_table, markdown_table

if TYPE_CHECKING:  # pandas takes most of a second to import: only those who make a table pay for it
    import pandas as pd


def fixed(decimals: int, sign: str = "") -> Callable[[float | None], str]:
    """A form of numbers: so many decimals, nothing for None and NaN."""
    return lambda value: "" if value is None or not math.isfinite(value) else f"{value:{sign}.{decimals}f}"


def thousands(value: int | None) -> str:
    """`26,958,472`; `-` for None."""
    return "-" if value is None else f"{value:,}"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    name : in CSV files
    value : of a row, as the frame holds it
    title : on pages, with its unit; the name where there is none
    show : a value as text, on pages; CSV files have the value itself
    csv : a value as text in CSV files
    """

    name: str
    value: Callable[[Any], Any]
    title: str = ""
    show: Callable[[Any], str] = str
    csv: Callable[[Any], Any] = lambda value: value


def _series(values: Iterable[Any]) -> pd.Series:
    """A column of a frame that keeps whole numbers whole beside None."""
    import pandas as pd

    return pd.Series(list(values), dtype=object)


@dataclass(frozen=True)
class Table:
    """`columns` and a frame that has one of values for each of them, under its name."""

    columns: Sequence[Column]
    frame: pd.DataFrame

    @classmethod
    def of(cls, columns: Iterable[Column], rows: Iterable[Any]) -> Table:
        """The table of `rows`, whatever they are to the columns."""
        import pandas as pd

        columns, rows = list(columns), list(rows)
        return cls(columns, pd.DataFrame({c.name: _series(map(c.value, rows)) for c in columns}))

    def __bool__(self) -> bool:
        return len(self.frame) > 0

    def pick(self, *names: str) -> Table:
        """The columns of these names alone, in this order."""
        of = {column.name: column for column in self.columns}
        return Table([of[name] for name in names], self.frame[list(names)])

    @property
    def header(self) -> list[str]:
        """Titles of the columns."""
        return [column.title or column.name for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """Lines of text, as pages show them."""
        shown = [map(column.show, self.frame[column.name]) for column in self.columns]
        return [list(line) for line in zip(*shown, strict=True)]

    def csv(self) -> str:
        """The table as a CSV file."""
        import pandas as pd

        written = {c.name: _series(map(c.csv, self.frame[c.name])) for c in self.columns}
        return pd.DataFrame(written).to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        """The table as Markdown; columns of numbers are aligned right."""
        return "\n".join(markdown_table(self.header, self.cells))

    def text(self) -> list[str]:
        """Lines for a terminal; columns of numbers are aligned right."""
        return aligned_table(self.header, self.cells)
