"""Errors that a user can mend: one sentence that names the file, the value and the cure."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


class UserError(Exception):
    """Bad input, bad configuration or a missed condition: shown as its one sentence, without a traceback."""


@contextlib.contextmanager
def exit_with_sentence(log: str | os.PathLike | None = None) -> Iterator[None]:
    """Turn a `UserError` inside the block into its sentence on standard error and exit status 1.

    With `log`, what the block writes to `sys.stderr` (progress, that sentence, a traceback) goes to that file as well.
    """
    with _copied_to(log) if log else contextlib.nullcontext():
        try:
            yield
        except UserError as error:
            print(f"geomix: {error}", file=sys.stderr, flush=True)
            raise SystemExit(1) from None


class _Copied:
    """A text stream that also writes to a file; everything else is the stream's own."""

    def __init__(self, stream, file):
        self._stream, self._file = stream, file

    def write(self, text: str) -> int:
        self._file.write(text)
        self._file.flush()
        return self._stream.write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@contextlib.contextmanager
def _copied_to(log: str | os.PathLike) -> Iterator[None]:
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    stream = sys.stderr
    with open(log, "a", encoding="utf-8") as file:
        sys.stderr = _Copied(stream, file)
        try:
            yield
        except Exception:
            import traceback

            file.write(traceback.format_exc())
            raise
        finally:
            sys.stderr = stream
