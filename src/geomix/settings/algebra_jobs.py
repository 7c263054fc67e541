"""Names of the algebra study's tasks and arms, and what each job depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geomix.settings.algebra import RepresentationArm, Task
from geomix.settings.trainings import BASELINE, training_settings

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


def language_job_settings(algebra: Mapping[str, Any], phase: str, arm: str) -> dict[str, Any]:
    """All that decides the outcome of one job of phase 2 (`components`) or 3 (`architectures`), and nothing else."""
    language = algebra["language"]
    return {
        "phase": phase,
        "arm": arm,
        "seeds": algebra[phase]["seeds"],
        **{key: language[key] for key in ("heads", "model")},
        "training": {key: value for key, value in language["training"].items() if key != "log_every"},
    }


def speech_job_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of phase 3 on speech: those of the speech study's attention arm, with this phase's epochs."""
    settings = training_settings(dict(config), BASELINE, 0, "own")
    training = {**settings["training"], "epochs": config["algebra"]["speech"]["epochs"]}
    return {**settings, "training": training}
