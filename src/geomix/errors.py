"""Errors that a user can mend: one sentence that names the file, the value and the cure."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


class UserError(Exception):
    """Bad input, bad configuration or a missed condition: shown as its one sentence, without a traceback."""


@contextlib.contextmanager
def exit_with_sentence() -> Iterator[None]:
    """Turn a `UserError` inside the block into its sentence on standard error and exit status 1."""
    try:
        yield
    except UserError as error:
        print(f"geomix: {error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None
