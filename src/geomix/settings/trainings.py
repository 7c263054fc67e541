"""The trainings of a study and all that decides the weights of each: the one notion of a changed setting.

All functions take a resolved configuration (`geomix.settings.resolve`), in which every default is filled in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from geomix.mixers.own.source import is_own
from geomix.mixers.registry import MIXERS
from geomix.settings.arms import SPEECH_ARMS, STUDY_KEYS
from geomix.settings.base import Section, extra_of, without_before
from geomix.settings.initial import initial_weights, without_place
from geomix.settings.language import LanguageModel, LanguageTraining
from geomix.settings.replacements import Replacements, split_replaced
from geomix.settings.speech import Augmentation, Features, Model, Training

E_BRANCHFORMER = "e_branchformer"
"""Architecture of ESPnet's own model: there is no such model on the track own."""

ESPNET_VERSION = "202611"
"""The release that the track espnet is pinned to; part of its trainings' settings."""

MODEL_VERSIONS = {"conformer": 1, "granite_encoder": 1, E_BRANCHFORMER: 1, "transformer_lm": 1}
"""Raised with every change of a model's code that changes its output (tests/models/test_golden.py says when)."""

BASELINE = "attention"
"""The arm to whose size the others of the speech study are matched."""

LANGUAGE_TRACK = "language"
_SPEECH_MODEL_KEYS = {"ff_dim": "ff_dim", "conv_kernel": "kernel"}
"""Key of an arm -> the key of `model` that it stands for."""
_LANGUAGE_MODEL_KEYS = ("blocks", "norm", "init_std", "extra_linear", "ff_dim")
_LANGUAGE_TRAINING_KEYS = ("batch", "learning_rate", "learning_rate_by_grade", "warmup", "clip", "weight_decay")
_ARCHITECTURES = {
    arm.model_fields["architecture"].annotation.__args__[0]: arm
    for arm in SPEECH_ARMS
    if "architecture" in arm.model_fields
}


def evaluation_sets(config: Mapping[str, Any]) -> list[str]:
    """Names of the sets that are decoded and scored, in the order of `corpus.test`."""
    return list(config["corpus"]["test"])


def granite_rows(config: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(row, checkpoint, head) of the reference rows: a row is named after its checkpoint, with -ctc behind it for the CTC head."""
    return [
        (name + ("-ctc" if head == "ctc" else ""), name, head)
        for name, checkpoint in (config.get("granite") or {}).get("checkpoints", {}).items()
        for head in checkpoint["heads"]
    ]


def about_training(config: Mapping[str, Any], arm: str) -> dict[str, Any]:
    """What a run record says of a training of the speech study beside its settings."""
    definition = config["arms"][arm]
    return {
        "run": config["run"],
        "corpus": config["corpus"]["name"],
        "arm": arm,
        "gated": definition["gated"],
        "unmatched": definition["unmatched"],
    }


def is_speech(study: Mapping[str, Any]) -> bool:
    """Whether a study.json (or a configuration) is of a speech study: a language study has no tracks."""
    return "tracks" in study["study"]


def seeds_of(study: Mapping[str, Any], track: str) -> list[int]:
    """Seeds of a track: `study.seeds`, unless `study.track_seeds` names others for it."""
    return list((study.get("track_seeds") or {}).get(track, study["seeds"]))


def trainings_of(study: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """All (track, arm, seed) of a study: first the first seed of each track's arms, then the second ones, and so on."""
    tracks = {track: seeds_of(study, track) for track in study["tracks"]}
    return [
        (track, arm, seeds[number])
        for number in range(max(map(len, tracks.values())))
        for track, seeds in tracks.items()
        if number < len(seeds)
        for arm in study["arms"]
    ]


def language_trainings_of(language: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(arm, seed) of each training of the language study: the study's seeds, or the arm's own."""
    study = language["study"]
    return [(arm, seed) for arm in study["arms"] for seed in language["arms"][arm].get("seeds") or study["seeds"]]


def training_settings(config: Mapping[str, Any], arm: str, seed: int, track: str) -> dict[str, Any]:
    """All that decides the weights of one training of the speech study, and nothing else.

    The data are not among it: the hashes of what was prepared, which `settings_hash` takes beside it, stand for them. Nor
    are the names of run and arm: equal trainings are one training.
    """
    arm_values = {key: value for key, value in config["arms"][arm].items() if key not in STUDY_KEYS}
    if "architecture" in arm_values:  # another model altogether: nothing of `model` is its
        model, versions = arm_values, {"model": MODEL_VERSIONS[arm_values["architecture"]]}
    else:
        model = {**config["model"], **taken_of_model(arm_values)}
        if replaced := split_replaced(arm_values):
            model["replaced"] = replaced
        model["mixer"] = arm_values
        versions = {"model": MODEL_VERSIONS["conformer"]}
        if not is_own(arm_values["mixer"]):  # of whose code the settings hold the hash
            versions["mixer"] = MIXERS[arm_values["mixer"]].arguments.version
    training = _that_train(config["training"], Training)
    start = training.pop("init_from", None) if track == "own" else None
    return {
        "track": track,
        **({"espnet": ESPNET_VERSION} if track == "espnet" else {}),
        **({"init_from": initial_weights(start, arm, seed)} if start else {}),
        "seed": int(seed),
        "versions": versions,
        "model": {**model, "features": config["features"]["mels"]},
        "training": training,
        "augmentation": dict(config["augmentation"]),
        "features": dict(config["features"]),
    }


def taken_of_model(arm: dict[str, Any]) -> dict[str, Any]:
    """Take the values of `model` that an arm of the speech study names for itself out of its keys."""
    return {name: arm.pop(key) for key, name in _SPEECH_MODEL_KEYS.items() if key in arm}


def language_model_of(language: Mapping[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    """The model of an arm of the language study; its values and what it replaces are taken out of the arm's keys, which are then the mixer's."""
    model = {**language["model"], **{key: arm.pop(key) for key in _LANGUAGE_MODEL_KEYS if key in arm}}
    if isinstance(arm.get("positions"), int):  # else what stands for the position table
        model["positions"] = arm.pop("positions")
    replaced = split_replaced(arm, text=True)
    return {**model, "replaced": replaced} if replaced else model


def language_training_settings(language: Mapping[str, Any], arm: str, seed: int) -> dict[str, Any]:
    """All that decides the weights of one training of the language study, of the section `language`, and nothing else."""
    values = {key: value for key, value in language["arms"][arm].items() if key not in STUDY_KEYS}
    model = language_model_of(language, values)
    training = _that_train(language["training"], LanguageTraining)
    training |= {key: values.pop(key) for key in _LANGUAGE_TRAINING_KEYS if key in values}
    versions = {"model": MODEL_VERSIONS["transformer_lm"]}
    if not is_own(values["mixer"]):
        versions["mixer"] = MIXERS[values["mixer"]].arguments.version
    return {
        "track": LANGUAGE_TRACK,
        "seed": int(seed),
        "versions": versions,
        "model": {**model, "mixer": values},
        "training": training,
    }


def _that_train(values: Mapping[str, Any], section: type[Section]) -> dict[str, Any]:
    """The keys of a section that decide the weights."""
    return {
        key: value for key, value in values.items() if "train" in extra_of(section.model_fields[key]).get("reach", ())
    }


def settings_hash(settings: Mapping[str, Any], data_hashes: Mapping[str, str]) -> str:
    """Twelve hex digits that name a training: its settings and the prepared data it reads.

    A key that was added later is left out at the value that reproduces the time before it, and a version at 1.
    """
    text = json.dumps({"settings": _reduced(settings), "data": dict(data_hashes)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _reduced(settings: Mapping[str, Any]) -> dict[str, Any]:
    language = settings.get("track") == LANGUAGE_TRACK
    sections: dict[str, type[Section]] = {
        "training": LanguageTraining if language else Training,
        "augmentation": Augmentation,
        "features": Features,
    }
    reduced = {}
    for name, value in settings.items():
        if name == "versions":
            value = {what: version for what, version in value.items() if version != 1}
            if not value:
                continue
        elif name == "init_from":
            value = without_place(value)
        elif name == "model":
            value = _reduced_model(value, language)
        elif name in sections:
            value = without_before(value, sections[name])
        reduced[name] = value
    return reduced


def _reduced_model(model: Mapping[str, Any], language: bool) -> dict[str, Any]:
    if "architecture" in model:
        return without_before(model, _ARCHITECTURES[model["architecture"]])
    reduced = without_before(model, LanguageModel if language else Model)
    if "replaced" in model:
        reduced["replaced"] = without_before(model["replaced"], Replacements)
    mixer = model.get("mixer")
    if isinstance(mixer, Mapping) and mixer.get("mixer") in MIXERS:
        entry = MIXERS[mixer["mixer"]]
        reduced["mixer"] = without_before(mixer, (language and entry.causal) or entry.arguments)
    elif isinstance(mixer, Mapping) and is_own(mixer.get("mixer")):
        reduced["mixer"] = {**mixer, "mixer": mixer["mixer"].rpartition(":")[2]}  # wherever the file lies
    return reduced
