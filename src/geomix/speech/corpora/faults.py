"""What is wrong with a corpus. Preparation stops at the first fault; `geomix check` collects them all: the checks are the same."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from geomix.errors import UserError


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: its kind in a few words, and the sentence that names file, value and cure.

    stops : the study cannot run with it; else it is a warning
    """

    kind: str
    sentence: str
    stops: bool = True


class Faults:
    """Where the checks of a corpus say what they find.

    Parameters
    ----------
    collect : go on after a fault; else `add` raises it as a `UserError`
    """

    def __init__(self, collect: bool = False):
        self.collect = collect
        self._found: dict[Fault, None] = {}  # a table that two splits read is wrong once

    def add(self, kind: str, sentence: str) -> None:
        """A fault with which no study can run."""
        if not self.collect:
            raise UserError(sentence)
        self._found[Fault(kind, sentence)] = None

    def warn(self, kind: str, sentence: str) -> None:
        """Something that a person should know and that stops nothing."""
        self._found[Fault(kind, sentence, stops=False)] = None

    @contextlib.contextmanager
    def catch(self, kind: str) -> Iterator[None]:
        """Take a `UserError` of the block as a fault; the block is left at it."""
        try:
            yield
        except UserError as error:
            self.add(getattr(error, "kind", kind), str(error))

    @property
    def found(self) -> list[Fault]:
        """All that was said so far, in its order."""
        return list(self._found)

    def kinds(self, stops: bool) -> dict[str, list[str]]:
        """Kind -> its sentences, of the faults that stop a study or of the warnings."""
        kinds: dict[str, list[str]] = {}
        for fault in self._found:
            if fault.stops == stops:
                kinds.setdefault(fault.kind, []).append(fault.sentence)
        return kinds

    def print_warnings(self) -> None:
        """Tell the warnings on standard error, three examples a kind."""
        for line in summary_lines(self.kinds(stops=False), "warning: "):
            print(line, file=sys.stderr)


def summary_lines(kinds: dict[str, list[str]], mark: str = "") -> list[str]:
    """A line for each kind with its number, and under it its first three sentences."""
    lines = []
    for kind, sentences in kinds.items():
        lines.append(f"{mark}{kind}: {len(sentences)}")
        lines += [f"  {sentence}" for sentence in sentences[:3]]
        lines += [f"  and {len(sentences) - 3} more"] if sentences[3:] else []
    return lines
