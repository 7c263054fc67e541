"""Names of the algebra study's tasks and arms, what each job depends on, and the check of the config's `algebra` section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geomix.config import training_settings
from geomix.errors import UserError

TASKS = (
    "fixed_rotation", "rotors_spin3", "rotors_spin4", "versors_pin3", "intersection", "orientation", "analogy", "plane",
    "null_teacher", "null_product",
)  # fmt: skip
ARMS = (
    "clifford", "shuffled", "gauge", "all_plus", "other_signature", "mixed_signature", "dense", "wide_dense", "low_rank",
    "complex", "quaternion", "grouped",
)  # fmt: skip
# the fixed rotation is also fitted with four terms, where the sandwich of any table spans nearly every map
FOUR_TERMS = ("clifford_4", "shuffled_4")
# tasks whose models phase 4 looks into, and arms whose weights are kept for it
INSPECTED_TASKS = ("rotors_spin3", "analogy")
INSPECTED_ARMS = ("clifford", "shuffled", "dense")


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
        **{k: language[k] for k in ("heads", "model", "training")},
    }


def speech_job_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of phase 3 on speech: those of the speech study's attention arm, with this phase's epochs."""
    settings = training_settings(dict(config), config["gate"]["arm"], 0, "own")
    training = {**settings["training"], "epochs": config["algebra"]["speech"]["epochs"]}
    return {**settings, "training": training}


def check_algebra(algebra: Mapping[str, Any]) -> None:
    """Refuse an `algebra` section whose phases need what phase 1 does not run."""
    phase1 = algebra["representation"]
    if missing := [task for task in INSPECTED_TASKS if task not in phase1["tasks"]]:
        raise UserError(
            f"config: algebra.representation.tasks leaves out {', '.join(missing)}, whose models phase 4 looks into: add them"
        )
    if missing := [arm for arm in (*INSPECTED_ARMS, "gauge", "all_plus") if arm not in phase1["arms"]]:
        raise UserError(
            f"config: algebra.representation.arms leaves out {', '.join(missing)}, which the decision rule or phase 4 needs: add them"
        )
    language = algebra["language"]
    valued = [arm for arm in algebra["components"]["arms"] if arm in ("qk", "positions", "values")]
    if valued and language["model"]["width"] % (8 * language["heads"]):
        raise UserError(
            f"config: algebra.language.heads {language['heads']} leaves heads of width {language['model']['width']} that the 8 components of Cl(3) "
            f"do not divide, which {', '.join(valued)} of algebra.components.arms need: choose fewer heads or a wider model"
        )
    for phase, baseline in (("components", "scalar"), ("architectures", "wide_scalar")):
        if baseline not in algebra[phase]["arms"]:
            raise UserError(f"config: algebra.{phase}.arms leaves out {baseline!r}, the baseline of its table: add it")
    if algebra["speech"] and "wide_scalar" not in algebra["speech"]["arms"]:
        raise UserError("config: algebra.speech.arms leaves out 'wide_scalar', the baseline of its table: add it")
