"""Matched-pairs sentence-segment word error test (MAPSSWE) of two systems on one set.

Gillick & Cox, "Some statistical issues in the comparison of speech recognition algorithms", ICASSP 1989, as NIST's
sc_stats does it. The test is about two decoded outputs, so it is made for each pair of seeds and never on pooled seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

BOUNDARY_WORDS = 2  # sc_stats: as many words in a row, correct in both systems, end a segment


@dataclass(frozen=True)
class Mapsswe:
    """`mean` and `std` of the difference a - b in errors a segment, the z statistic and the two-sided p-value."""

    segments: int
    mean: float
    std: float
    z: float
    p: float


def error_segments(a: str, b: str) -> list[tuple[int, int]]:
    """Errors (of a, of b) in each segment of one utterance.

    `a` and `b` are the alignments of the two systems with the same reference, a letter a step: `=`, `S`, `I`, `D`. A
    segment begins at the first error of either system and ends once two words in a row are correct in both, or with
    the utterance; stretches in which both are correct are not segments.
    """
    steps_a, steps_b = _by_word(a), _by_word(b)
    if len(steps_a) != len(steps_b):
        raise ValueError(
            f"the alignments {a!r} and {b!r} have {len(steps_a) - 1} and {len(steps_b) - 1} reference words: "
            "align both systems with the same reference"
        )
    segments = []
    inside, errors_a, errors_b, good = False, 0, 0, 0
    for (inserted_a, wrong_a), (inserted_b, wrong_b) in zip(steps_a, steps_b, strict=True):
        if inserted_a or inserted_b:
            inside, good = True, 0
        errors_a += inserted_a + wrong_a
        errors_b += inserted_b + wrong_b
        if wrong_a or wrong_b:
            inside, good = True, 0
        elif inside:
            good += 1
            if good == BOUNDARY_WORDS:
                segments.append((errors_a, errors_b))
                inside, errors_a, errors_b, good = False, 0, 0, 0
    if errors_a or errors_b:
        segments.append((errors_a, errors_b))
    return segments


def _by_word(alignment: str) -> list[tuple[int, bool]]:
    """(insertions before the word, whether the word is wrong) for each reference word, and for the end."""
    steps, inserted = [], 0
    for step in alignment:
        if step == "I":
            inserted += 1
        else:
            steps.append((inserted, step != "="))
            inserted = 0
    return [*steps, (inserted, False)]


def mapsswe(alignments_a: Sequence[str], alignments_b: Sequence[str]) -> Mapsswe:
    """Test two systems from their alignments, one a utterance in the same order (see `error_segments`).

    z = mean / (std / sqrt(segments)) of the difference in errors, against a standard normal. Without a segment p is 1;
    a single segment, and differences that do not vary, have no standard deviation to judge by and give NaN.
    """
    pairs = zip(alignments_a, alignments_b, strict=True)
    differences = np.array([a - b for pair in pairs for a, b in error_segments(*pair)], dtype=float)
    n = len(differences)
    if not differences.any():
        return Mapsswe(n, 0.0, 0.0, 0.0, 1.0)
    mean, std = float(differences.mean()), float(differences.std(ddof=1)) if n > 1 else np.nan
    z = mean / (std / np.sqrt(n)) if std > 0 else np.nan
    return Mapsswe(n, mean, std, float(z), float(2 * stats.norm.sf(abs(z))))
