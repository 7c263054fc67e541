"""Recordings that a person names on the command line: each is checked, and a bad one does not keep the others from being read."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from geomix.errors import UserError
from geomix.speech.audio import read_audio


def read_recording(path: str | Path, least: int = 1) -> np.ndarray:
    """Samples (n,) of a mono 16 kHz file, at least `least`; UserError names the file and what is wrong, a sample that is not finite included."""
    samples = read_audio(path)
    if len(samples) < least:
        held = f"holds {len(samples)} samples" if len(samples) else "is empty"
        raise UserError(f"{path}: {held}, too short for the model: give a longer recording, at least {least} samples")
    return samples


@contextlib.contextmanager
def told(failures: list) -> Iterator[None]:
    """Print the sentence of a UserError inside the block, note it in `failures`, and go on."""
    try:
        yield
    except UserError as error:
        print(f"geomix: {error}", file=sys.stderr, flush=True)
        failures.append(error)


def finish(failures: list) -> None:
    """Exit status 1 when something was told."""
    if failures:
        raise SystemExit(1)


def one_line(text: str) -> str:
    """Text whose new lines, tabs and runs of space are single spaces: it cannot break a line of output."""
    return " ".join(text.split())
