"""What one training of the language study is, read from the config: the one notion of a changed setting."""

from __future__ import annotations

from typing import Any

from geomix.config import LOCATION_KEYS, check_planned
from geomix.errors import UserError

# keys of an arm besides its mixer and the mixer's arguments
STUDY_KEYS = ("gated", "unmatched", "seeds")
MODEL_KEYS = ("norm", "init_std", "extra_linear", "ff_dim")
TRAINING_KEYS = ("learning_rate", "warmup", "clip", "weight_decay")
# arguments of each mixer
MIXER_KEYS = {
    "attention": ("heads",),
    "pair": ("kind", "rank", "offsets", "one_offset_per_block", "form", "empty", "min_sine"),
}
# those of geomix.mixers.pair, which would import torch
OFFSETS = (1, 2, 4, 8, 12, 16)
# what results/<run>/language holds beside a folder an arm
RESULT_NAMES = (
    "study.json", "parity.json", "parity.passed", "tables.csv", "tables.md", "comparisons.json", "figures",
)  # fmt: skip
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
    """Refuse a `language` section that names an unknown arm, has an arm that cannot be trained, or whose gate's arm waits for it."""
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
    check_planned("language.comparison.planned", language["comparison"]["planned"])
    for name in dict.fromkeys([*language["study"]["arms"], language["gate"]["arm"]]):
        _check_arm(name, arms[name], language["model"]["positions"])


def _check_arm(name: str, arm: dict[str, Any], positions: int) -> None:
    """Refuse an arm named as a result file, with another mixer's key, or with a pair that no block of `positions` tokens holds."""
    where, mixer = f"config: language.arms.{name}", arm["mixer"]
    if name in RESULT_NAMES:
        raise UserError(f"{where}: {name} is taken in the folder of the results: give the arm another name")
    own = MIXER_KEYS[mixer]
    for key in arm:
        if key not in ("mixer", *own, *STUDY_KEYS, *MODEL_KEYS, *TRAINING_KEYS):
            raise UserError(f"{where}.{key}: the mixer {mixer} has no such argument: it takes {', '.join(own)}")
    if mixer != "pair":
        return
    if arm.get("kind") == "signed" and arm.get("rank", 32) < 3:
        raise UserError(f"{where}.rank {arm['rank']}: random signs need a rank of at least 3")
    for offset in arm.get("offsets", OFFSETS):
        if offset >= positions:
            raise UserError(
                f"{where}.offsets: {offset} does not fit into blocks of {positions} tokens: choose smaller offsets or raise "
                "language.model.positions"
            )
