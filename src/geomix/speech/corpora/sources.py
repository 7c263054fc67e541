"""The files that a prepared split was made from, with size and time, so that a later change of one is seen."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from geomix import files
from geomix.errors import UserError
from geomix.speech.manifest import read_lines

FILE = "sources.tsv"
AUDIO = "audio"
"""Folder, beside a split's manifest, of the recordings that were cut, converted or written by a command."""
_NUMBER = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, order=True)
class Source:
    """A file: absolute path, size in bytes, time of its last change in ns."""

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str | os.PathLike) -> Source:
        """As the file stands now; OSError when there is none."""
        found = os.stat(path)
        return cls(os.path.abspath(path), found.st_size, found.st_mtime_ns)


def write_sources(folder: Path, sources: Iterable[Source]) -> None:
    """Write `<folder>/sources.tsv`: path, size and mtime_ns with tabs, a line a file, sorted by path, without a header."""
    lines = []
    for source in sorted(set(sources)):
        if any(character in source.path for character in "\t\n\r"):
            raise UserError(f"{source.path!r}: has a tab or a line end in its name: rename it")
        lines.append(f"{source.path}\t{source.size}\t{source.mtime_ns}\n")
    files.write_text(folder / FILE, "".join(lines))


def stale_sources(folder: str | os.PathLike) -> list[str]:
    """A sentence for each source file of the prepared split `folder` that is gone or has another size or time."""
    listing, stale = Path(folder) / FILE, []
    for line in read_lines(listing, "prepare the split again"):
        path, *numbers = line.split("\t")
        if len(numbers) != 2 or not all(map(_NUMBER.fullmatch, numbers)) or "\0" in path:
            raise UserError(f"{listing}: {line!r} is not a path, a size and a time with tabs: prepare the split again")
        size, mtime_ns = map(int, numbers)
        try:
            now = Source.of(path)
        except OSError as error:
            stale.append(f"{path}: cannot be found any more ({error.strerror})")
            continue
        if now.size != size:
            stale.append(f"{path}: has {now.size} bytes, {size} when it was prepared")
        elif now.mtime_ns != mtime_ns:
            stale.append(f"{path}: was changed {_date(now.mtime_ns)}, and prepared as of {_date(mtime_ns)}")
    return stale


def _date(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9).isoformat(" ", "seconds")
