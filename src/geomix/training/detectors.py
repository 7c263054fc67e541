"""Detectors of a run that learns nothing, to stop it early rather than find out at its end."""

from __future__ import annotations

from collections.abc import Mapping

BLANK_SHARE = 0.9999
"""A run whose dev frames are blank to at least this share emits only blanks."""
FLOOR_MARGIN = 0.02
"""A dev loss must be at least this share below what guessing without the input gives."""


def learns_nothing(metrics: Mapping[str, float], floor: float | None) -> str | None:
    """What is wrong with a run that measured `metrics` on dev, as a verb phrase, or None.

    `metrics` may hold "blank_share" and "dev_loss"; `floor` is the dev loss of the best guess that ignores the input.
    """
    blank = metrics.get("blank_share")
    if blank is not None and blank >= BLANK_SHARE:
        return f"emits only blanks on dev (share of blank frames {blank:.4f})"
    loss = metrics.get("dev_loss")
    if floor is not None and loss is not None and not loss < (1 - FLOOR_MARGIN) * floor:
        return f"sits at the unigram floor (dev loss {loss:.3f}, guessing without the input gives {floor:.3f})"
    return None
