"""Errors that a user can mend: one sentence that names the file, the value and the cure."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_LONGEST = 1000  # letters of a sentence: an id or a line of megabytes helps nobody


class UserError(Exception):
    """Bad input, bad configuration or a missed condition: shown as its one sentence, without a traceback."""


def sentence_of(error: BaseException) -> str | None:
    """What a person is told of an error, on one line; None for one that only its traceback explains.

    A `UserError` is its sentence. An error of the system that names a file (a folder in its place, a link to itself, no
    right to read it), a full disk and too little memory are told too: whoever can mend them needs the name and the reason.
    """
    if isinstance(error, UserError):
        return _shown(str(error))
    if isinstance(error, MemoryError):
        return _shown(
            f"the memory does not suffice ({str(error) or 'of this machine or job'}): ask for less, or for more memory"
        )
    if not isinstance(error, OSError):
        return None
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else error.filename
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _shown(f"{name or 'the output'}: the disk is full ({error.strerror}): free some space and run again")
    if name is None or error.strerror is None:
        return None
    return _shown(f"{name}: cannot be read or written ({error.strerror}): mend it or name another place")


def _shown(text: str) -> str:
    """Text whose line ends and other letters that a terminal would obey, or a file cannot hold, are escaped; a long one's middle is cut."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


@contextlib.contextmanager
def exit_with_sentence(log: str | os.PathLike | None = None) -> Iterator[None]:
    """Turn an error inside the block that `sentence_of` explains into that sentence on standard error and exit status 1.

    With `log`, what the block writes to `sys.stderr` (progress, that sentence, a traceback) goes to that file as well.
    """
    with _copied_to(log) if log else contextlib.nullcontext():
        try:
            yield
        except (UserError, OSError, MemoryError) as error:
            sentence = sentence_of(error)
            if sentence is None:
                raise
            print(f"geomix: {sentence}", file=sys.stderr, flush=True)
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
    with open(log, "a", encoding="utf-8", errors="backslashreplace") as file:
        sys.stderr = _Copied(stream, file)
        try:
            yield
        except Exception:
            import traceback

            file.write(traceback.format_exc())
            raise
        finally:
            sys.stderr = stream
