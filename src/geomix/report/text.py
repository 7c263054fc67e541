"""Tables and intervals as text, for pages and terminals."""

from __future__ import annotations

import math


def markdown_table(header: list[str], lines: list[list[str]]) -> list[str]:
    """Lines of a Markdown table; columns of numbers are aligned right."""
    number = _number_columns(header, lines)
    rule = ["---:" if n else "---" for n in number]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, rule, *lines)]
    return ["| " + " | ".join(row) + " |" for row in cells]


def aligned_table(header: list[str], lines: list[list[str]]) -> list[str]:
    """Lines of a table for a terminal; columns of numbers are aligned right."""
    table = [header, *lines]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    number = _number_columns(header, lines)

    def line(row: list[str]) -> str:
        cells = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, number, strict=True))
        return "  ".join(cells).rstrip()

    return [line(header), "  ".join("-" * w for w in widths), *map(line, lines)]


def _number_columns(header: list[str], lines: list[list[str]]) -> list[bool]:
    return [all(row[i][:1] in "+-0123456789[" for row in lines) for i in range(len(header))]


def interval_text(low: float | None, high: float | None, sign: str = "+") -> str:
    """`[low, high]` with two decimals, or that there is none."""
    if low is None or high is None or not math.isfinite(low + high):
        return "[no interval]"
    return f"[{low:{sign}.2f}, {high:{sign}.2f}]"


def named_verdict(verdict: str, a: str, b: str) -> str:
    """The verdict of a comparison with the systems by name: `grassmann better` for `a better`; any other as it is."""
    return {"a better": f"{a} better", "b better": f"{b} better"}.get(verdict, verdict)
