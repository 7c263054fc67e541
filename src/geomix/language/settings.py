"""What one training of the language study is, read from the config: the one notion of a changed setting."""

from __future__ import annotations

from typing import Any

from geomix.config import LOCATION_KEYS
from geomix.errors import UserError

# keys of an arm besides its mixer and the mixer's arguments
STUDY_KEYS = ("gated", "unmatched", "seeds")
MODEL_KEYS = ("norm", "init_std", "extra_linear", "ff_dim")
TRAINING_KEYS = ("learning_rate", "warmup", "clip", "weight_decay")
# keys of language.training that never change a result
NEUTRAL_KEYS = ("device", "threads", "save_minutes", "log_every")


def language_settings(language: dict[str, Any], arm: str, seed: int) -> dict[str, Any]:
    """All that decides the weights of one training, of `language` (the config's `language` section), and nothing else.

    The prepared data's hashes are added by `geomix.config.settings_hash`.
    """
    values = {key: value for key, value in language["arms"][arm].items() if key not in STUDY_KEYS}
    model = {**language["model"], **{key: values.pop(key) for key in MODEL_KEYS if key in values}}
    training = {key: value for key, value in language["training"].items() if key not in NEUTRAL_KEYS}
    training |= {key: values.pop(key) for key in TRAINING_KEYS if key in values}
    corpus = {key: value for key, value in language["corpus"].items() if key not in LOCATION_KEYS}
    if isinstance(corpus["vocabulary"], str):
        corpus["vocabulary"] = "file"  # where it lies is no setting: its hash is among the data's
    return {
        "track": "language",
        "seed": int(seed),
        "model": {**model, "mixer": values},
        "training": training,
        "corpus": corpus,
    }


def runs_of(language: dict[str, Any]) -> list[tuple[str, int]]:
    """(arm, seed) of each training of the study: the study's seeds, or the arm's own."""
    study = language["study"]
    return [(arm, seed) for arm in study["arms"] for seed in language["arms"][arm].get("seeds", study["seeds"])]


def check_language(language: dict[str, Any]) -> None:
    """Refuse a `language` section that names an unknown arm or whose gate's arm waits for the gate."""
    arms = language["arms"]
    for where, names in (
        ("study.arms", language["study"]["arms"]),
        ("comparison.planned", [name for pair in language["comparison"]["planned"] for name in pair]),
        ("gate.arm", [language["gate"]["arm"]]),
    ):
        for name in names:
            if name not in arms:
                raise UserError(f"config: language.{where} names {name!r}: known arms are {', '.join(arms)}")
    if arms[language["gate"]["arm"]].get("gated"):
        raise UserError(f"config: language.arms.{language['gate']['arm']}.gated: the gate's own arm cannot wait for it")
