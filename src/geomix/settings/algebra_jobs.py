"""Phase 1's tasks, arms and jobs; phases 2 and 3 as studies like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geomix.settings.algebra import RepresentationArm, Task
from geomix.settings.trainings import BASELINE

TASKS = Task.__args__
ARMS = RepresentationArm.__args__
# the fixed rotation is also fitted with four terms, where the sandwich of any table spans nearly every map
FOUR_TERMS = ("clifford_4", "shuffled_4")


def arms_of(task: str, arms: list[str]) -> list[str]:
    """The arms of a task: those asked for and, on the fixed rotation, the four-term forms of the first two."""
    return [*arms, *(a for a in FOUR_TERMS if task == "fixed_rotation" and a.removesuffix("_4") in arms)]


def job_settings(representation: Mapping[str, Any], task: str, arm: str) -> dict[str, Any]:
    """All that decides the outcome of one job of phase 1, and nothing else."""
    keys = ("rotations", "seeds") if task == "fixed_rotation" else ("seeds", "steps", "learning_rate")
    settings = {key: representation[key] for key in keys}
    if arm.startswith("shuffled"):
        settings["tables"] = representation["tables"]
    if arm == "gauge":
        settings["tables"] = representation["gauge_tables"]
    return {"task": task, "arm": arm, **settings}


def phase_study(config: Mapping[str, Any], phase: str) -> dict[str, Any]:
    """Phase 2 (`components`) or 3 (`architectures`) as a section in the form of `language`, with its `run` beside the keys."""
    algebra = config["algebra"]
    shared = algebra["language"]
    return {
        "run": f"{algebra['run']}/{phase}",
        **{key: shared[key] for key in ("corpus", "model", "training")},
        **{key: algebra[phase][key] for key in ("arms", "study", "comparison")},
        "gate": None,
        "references": [],
        "hypothesis": [],
    }


def speech_phase_study(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Phase 3 on speech as a configuration in the form of the whole one; None where none is asked for.

    Sizes are beside the configuration's own baseline, which is not trained here.
    """
    algebra = config["algebra"]
    phase = algebra["speech"]
    if phase["study"] is None:
        return None
    return {
        **config,
        "run": f"{algebra['run']}/speech",
        "arms": {BASELINE: config["arms"][BASELINE], **phase["arms"]},
        "study": {**phase["study"], "tracks": ["own"], "track_seeds": {}},
        "comparison": phase["comparison"],
        "training": {**config["training"], "init_from": None, **phase["training"]},
        "gate": None,
        "references": [],
        "hypothesis": [],
        "granite": None,
    }
