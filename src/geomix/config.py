"""The configuration: reading and checking it, and the one notion of "a changed setting"."""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from geomix.errors import UserError

# keys of `training` that never change a result: they are left out of the settings, so changing one retrains nothing
NEUTRAL_TRAINING_KEYS = ("device", "threads", "save_minutes", "log_every")
# keys of an arm that say how the study treats it, not what is trained
STUDY_ARM_KEYS = ("gated", "unmatched")
# arms that are ESPnet's own models: there is no such model in the own track
E_BRANCHFORMER = "e_branchformer"
# the release that the track espnet is pinned to; part of its trainings' settings
ESPNET_VERSION = "202611"
# what results/ holds beside a folder a run
RESULT_NAMES = ("README.md", "bench", "speed")
# where the recordings lie is no setting: the prepared data's hashes stand for them
LOCATION_KEYS = ("path", "download")


def load_config(*overlays: str | os.PathLike, base: str | os.PathLike = "config.yaml") -> dict[str, Any]:
    """Read `base` and lay each overlay over it as Snakemake does: dictionaries merge deeply, lists are replaced.

    Returns the checked configuration; raises `UserError` naming the file or key at fault.
    """
    import yaml

    config: dict[str, Any] = {}
    for path in (base, *overlays):
        try:
            layer = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(
                f"{path}: no such configuration file; run from the project's root or name another"
            ) from None
        except yaml.YAMLError as error:
            raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
        if not isinstance(layer, dict):
            raise UserError(f"{path}: a configuration is a dictionary of keys, not {type(layer).__name__}")
        config = _merge(config, layer)
    validate_config(config)
    return config


def _merge(under: Any, over: Any) -> Any:
    if isinstance(under, dict) and isinstance(over, dict):
        merged = dict(under)
        for key, value in over.items():
            merged[key] = _merge(under[key], value) if key in under else value
        return merged
    return copy.deepcopy(over)


def validate_config(config: dict[str, Any], schema: str | os.PathLike | None = None) -> None:
    """Check a merged configuration against config/schema.json and for sense; raise `UserError` naming the key at fault."""
    import jsonschema

    _refuse_non_finite(config)
    schema = Path(schema) if schema else Path(__file__).resolve().parents[2] / "config" / "schema.json"
    draft = jsonschema.Draft202012Validator
    # JSON takes 1.0 for an integer; as a setting it differs from 1
    types = draft.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    validator = jsonschema.validators.extend(draft, type_checker=types)
    error = jsonschema.exceptions.best_match(
        validator(json.loads(schema.read_text(encoding="utf-8"))).iter_errors(config)
    )
    if error is not None:
        raise UserError("config: " + _explain(error))
    arms = config["arms"]
    for where, names in (
        ("study.arms", config["study"]["arms"]),
        ("comparison.planned", [name for pair in config["comparison"]["planned"] for name in pair]),
    ):
        for name in names:
            if name not in arms:
                raise UserError(f"config: {where} names {name!r}, which is not among the arms: {_suggest(name, arms)}")
    check_planned("comparison.planned", config["comparison"]["planned"])
    sets = set(evaluation_sets(config))
    for name in config["study"]["arms"]:
        if arms[name].get("architecture") == E_BRANCHFORMER:
            raise UserError(
                f"config: study.arms names {name!r}, a model of ESPnet's alone, which serves as an anchor: name it in gate.fallback"
            )
    for where, anchor in (("gate", config["gate"]), ("gate.fallback", config["gate"]["fallback"])):
        if anchor is None:
            continue
        if anchor["arm"] not in arms:
            raise UserError(
                f"config: {where}.arm names {anchor['arm']!r}, which is not among the arms: {_suggest(anchor['arm'], arms)}"
            )
        if arms[anchor["arm"]].get("architecture") == E_BRANCHFORMER and anchor["track"] != "espnet":
            raise UserError(
                f"config: {where}.track {anchor['track']!r}: arm {anchor['arm']!r} exists on the track espnet alone"
            )
        for target in anchor["targets"]:
            if target["set"] not in sets:
                raise UserError(
                    f"config: gate.targets names {target['set']!r}, which is not an evaluation set: {_suggest(target['set'], sets)}"
                )
    rows = [row for row, _, _ in granite_rows(config)]
    if repeated := [row for row in rows if rows.count(row) > 1]:
        raise UserError(
            f"config: granite.checkpoints has two rows named {repeated[0]!r} (a CTC head's row ends in -ctc): rename one"
        )
    algebra_run = config.get("algebra", {}).get("run")
    for where, run in (("run", config["run"]), ("algebra.run", algebra_run)):
        if run in RESULT_NAMES:
            raise UserError(f"config: {where}: results/{run} holds something else: give the run another name")
    if algebra_run == config["run"]:
        raise UserError(f"config: run and algebra.run are both {config['run']!r}: give them different names")
    if arms[config["gate"]["arm"]].get("gated"):
        raise UserError(f"config: arms.{config['gate']['arm']}.gated: the gate's own arm cannot wait for the gate")
    language_gate = config.get("language", {}).get("gate", {})
    low, high = language_gate.get("low"), language_gate.get("high")
    if low is not None and high is not None and low > high:
        raise UserError(f"config: language.gate.low {low} is above language.gate.high {high}: no perplexity could pass")
    _check_heads(config)


def check_planned(where: str, pairs: list[list[str]]) -> None:
    """Refuse a contrast of an arm with itself and one that is listed twice, in either order; `where` is the list's key."""
    seen: set[frozenset[str]] = set()
    for a, b in pairs:
        if a == b:
            raise UserError(f"config: {where}: [{a}, {b}] compares an arm with itself: name two arms")
        if {a, b} in seen:
            raise UserError(f"config: {where}: [{a}, {b}] is listed twice: leave one out")
        seen.add(frozenset((a, b)))


def _refuse_non_finite(value: Any, where: str = "") -> None:
    """YAML knows .nan and .inf, which pass any bound of the schema."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"config: {where}: {value} is not a finite number")
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        _refuse_non_finite(inner, f"{where}.{key}" if where else str(key))


def _check_heads(config: dict[str, Any]) -> None:
    """Heads must divide the width: said before data are prepared, not by the first training."""
    found = [(f"arms.{arm}", "model", config["arms"][arm], config["model"]) for arm in config["study"]["arms"]]
    if language := config.get("language"):
        arms = language["arms"]
        found += [
            (f"language.arms.{arm}", "language.model", arms[arm], language["model"])
            for arm in language["study"]["arms"]
            if arm in arms
        ]
    if algebra := config.get("algebra"):
        found.append(("algebra.language", "algebra.language.model", algebra["language"], algebra["language"]["model"]))
    for where, model_name, arm, model in found:
        if "heads" in arm and "architecture" not in arm and model["width"] % arm["heads"]:
            raise UserError(
                f"config: {where}.heads {arm['heads']} does not divide {model_name}.width {model['width']}: choose a divisor of it"
            )


def _explain(error: Any) -> str:
    """One sentence for a schema error: the key's path, the value and what is allowed."""
    where = ".".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = error.schema.get("properties", {})
        unknown = [key for key in error.instance if key not in known]
        if unknown:
            return f"{where}: unknown key {unknown[0]!r}: {_suggest(unknown[0], known)}"
    if error.validator == "required":
        return f"{where}: {error.message}"
    if error.validator == "type" and "integer" in error.validator_value and isinstance(error.instance, float):
        cure = f": write {error.instance:.0f}" if error.instance.is_integer() else ""
        return f"{where}: {error.instance!r} is not a whole number{cure}"
    if error.validator == "enum":
        return f"{where}: {error.instance!r} is not one of {', '.join(map(str, error.validator_value))}"
    return f"{where}: {error.message}"


def _suggest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(str(name), [str(k) for k in known], n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(map(str, known)))}"


def evaluation_sets(config: dict[str, Any]) -> list[str]:
    """Names of the sets that are decoded and scored, in the order of `corpus.test`."""
    return list(config["corpus"]["test"])


def granite_rows(config: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(row, checkpoint, head) of the reference rows: a row is named after its checkpoint, with -ctc behind it for the CTC head."""
    return [
        (name + ("-ctc" if head == "ctc" else ""), name, head)
        for name, checkpoint in config.get("granite", {}).get("checkpoints", {}).items()
        for head in checkpoint["heads"]
    ]


def about_training(config: dict[str, Any], arm: str) -> dict[str, Any]:
    """What a run record says of a training of the speech study beside its settings."""
    definition = config["arms"][arm]
    return {
        "run": config["run"],
        "corpus": config["corpus"]["name"],
        "arm": arm,
        **{key: definition.get(key) for key in STUDY_ARM_KEYS},
    }


def seeds_of(study: dict[str, Any], track: str) -> list[int]:
    """Seeds of a track: `study.seeds`, unless `study.track_seeds` names others for it."""
    return list(study.get("track_seeds", {}).get(track, study["seeds"]))


def trainings_of(study: dict[str, Any]) -> list[tuple[str, str, int]]:
    """All (track, arm, seed) of a study: first the first seed of each track's arms, then the second ones, and so on."""
    tracks = {track: seeds_of(study, track) for track in study["tracks"]}
    return [
        (track, arm, seeds[number])
        for number in range(max(map(len, tracks.values())))
        for track, seeds in tracks.items()
        if number < len(seeds)
        for arm in study["arms"]
    ]


def training_settings(config: dict[str, Any], arm: str, seed: int, track: str) -> dict[str, Any]:
    """All that decides the weights of one training, and nothing else.

    The rule's `params` and the state folder's hash are both made of this, so that there is one notion of "changed".
    What the settings cannot know before the data exist, the hashes of the prepared data, is added by `settings_hash`.
    """
    arm_config = {key: value for key, value in config["arms"][arm].items() if key not in STUDY_ARM_KEYS}
    if "architecture" in arm_config:  # another model altogether: nothing of `model` is its
        model = arm_config
    else:
        model = {**config["model"]}
        if "ff_dim" in arm_config:
            model["ff_dim"] = arm_config.pop("ff_dim")
        model["mixer"] = arm_config
    return {
        "track": track,
        **({"espnet": ESPNET_VERSION} if track == "espnet" else {}),
        "seed": int(seed),
        "model": {**model, "features": config["features"]["mels"]},
        "training": {key: value for key, value in config["training"].items() if key not in NEUTRAL_TRAINING_KEYS},
        "augmentation": dict(config["augmentation"]),
        "data": {
            "corpus": {key: value for key, value in config["corpus"].items() if key not in LOCATION_KEYS},
            "features": dict(config["features"]),
            "tokenizer": dict(config["tokenizer"]),
        },
    }


def settings_hash(settings: dict[str, Any], data_hashes: dict[str, str]) -> str:
    """Twelve hex digits that name a training's state folder: its settings and the prepared data it reads."""
    text = json.dumps({"settings": settings, "data": data_hashes}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
