"""What each stage of the workflow is told: the params of the rules, and the keys that name prepared data.

A rule runs again when what this module says of it changes; `stage_settings` puts all of it side by side, and a test holds
each key's reach (`settings.base.key`) against it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from geomix.settings.algebra_jobs import arms_of, job_settings, phase_study, speech_phase_study
from geomix.settings.algebra_truncation import cell_settings, cells
from geomix.settings.base import without_before
from geomix.settings.speech import Corpus
from geomix.settings.trainings import (
    evaluation_sets,
    granite_rows,
    language_training_settings,
    language_trainings_of,
    settings_hash,
    training_settings,
    trainings_of,
)

# keys of a corpus that only a kind that generates its recordings reads
GENERATED = {
    "demo": ("seed", "minutes", "dev_minutes", "test_minutes", "snr_db"),
    "smoke": ("seed", "speakers", "utterances"),
}


def splits_of(config: Mapping[str, Any]) -> list[str]:
    """Splits that are prepared: train, dev and each evaluation set; one that is called dev is dev."""
    return list(dict.fromkeys(["train", "dev", *evaluation_sets(config)]))


def generated_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a generated corpus is made with; empty for one that is read."""
    corpus = config["corpus"]
    return {"kind": corpus["kind"], **{key: corpus[key] for key in GENERATED.get(corpus["kind"], ())}}


def split_settings(config: Mapping[str, Any], split: str) -> dict[str, Any]:
    """What one split is made with; where the recordings lie is not among it.

    A further test set changes nothing of the other splits, unless it holds out speakers of the training set.
    """
    corpus = config["corpus"]
    settings = {**generated_settings(config), "split": split}
    if split == "train":
        sets = [corpus["dev"], *(corpus["test"].values() if isinstance(corpus["test"], Mapping) else ())]
        held_out = {speaker for each in sets if isinstance(each, Mapping) for speaker in each["hold_out_speakers"]}
        settings |= {
            "read": corpus["train"],
            "held_out": sorted(held_out),
            "speed_factors": corpus["speed_factors"],
        }
    else:
        tests = corpus["test"] if isinstance(corpus["test"], Mapping) else {name: [name] for name in corpus["test"]}
        choice = corpus["dev"] if split == "dev" else tests[split]
        held_out = isinstance(choice, Mapping)
        settings |= {"read": corpus["train"], **choice} if held_out else {"read": choice}
    if split in ("train", "dev"):
        settings |= {key: corpus[key] for key in ("min_seconds", "max_seconds")}
    return settings | _later(corpus, "resample", "normaliser")


def _later(corpus: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Those keys of a corpus that were added later and are not at the value that reproduces the time before them."""
    return without_before({key: corpus[key] for key in keys}, Corpus)


def keeps_audio(corpus: Mapping[str, Any]) -> bool:
    """Whether preparation may have to write recordings: cut out of longer ones, converted, or written by commands."""
    if corpus.get("resample") or corpus.get("allow_pipes"):
        return True
    if corpus["kind"] != "kaldi":
        return False
    path = os.path.expandvars(corpus["path"] or "")
    splits = [name for part in (corpus["train"], corpus["dev"]) if not isinstance(part, Mapping) for name in part]
    tests = corpus["test"]
    for part in tests.values() if isinstance(tests, Mapping) else [tests]:
        splits += [] if isinstance(part, Mapping) else part
    return any(os.path.exists(os.path.join(path, name, "segments")) for name in splits)


def scoring(config: Mapping[str, Any]) -> dict[str, Any]:
    """Params of the scoring of hypotheses: nothing where they are scored as they stand."""
    return _later(config["corpus"], "normaliser")


def digest(value: Any, digits: int = 8) -> str:
    """Hexadecimal digits that name plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:digits]


def split_key(config: Mapping[str, Any], split: str) -> str:
    """Eight hex digits that name what a split is made with: data/<corpus>/<split>-<key>/."""
    return digest(split_settings(config, split))


def preparation(config: Mapping[str, Any], split: str) -> dict[str, Any]:
    """Params of the preparation of a split: what it is made with, and where its recordings lie, as the config says it."""
    corpus = config["corpus"]
    places = {key: corpus[key] for key in ("name", "path", "audio_root")}
    return {**split_settings(config, split), **places, **_later(corpus, "allow_pipes")}


def corpus_at(config: Mapping[str, Any], generated: str | None = None) -> dict[str, Any]:
    """The corpus with `path` as the place on this machine: variables expanded, or the folder of what was generated."""
    corpus = config["corpus"]
    path = generated or os.path.expandvars(corpus["path"] or "") or None
    root = corpus["audio_root"] and os.path.expandvars(corpus["audio_root"])
    return {**corpus, "path": path, "audio_root": root}


def features(config: Mapping[str, Any]) -> dict[str, Any]:
    """Params of the features of a split at a speed."""
    return dict(config["features"])


def tokenizer(config: Mapping[str, Any]) -> dict[str, Any]:
    """Params of the tokenizer."""
    return dict(config["tokenizer"])


def training(config: Mapping[str, Any], arm: str, seed: int, track: str) -> str:
    """Param of a training: the hash of all that decides its weights beside the data."""
    return settings_hash(training_settings(config, arm, seed, track), {})


def selection(config: Mapping[str, Any]) -> dict[str, Any]:
    """Params of averaging: which epochs."""
    return {key: config["training"][key] for key in ("keep_best", "best_by")}


def gate(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Params of the gate."""
    return config["gate"]


def comparison(config: Mapping[str, Any]) -> dict[str, Any]:
    """Params of the comparison of arms."""
    judged = [expectation["holds"] for expectation in config["hypothesis"]]
    return {"study": config["study"], "sets": evaluation_sets(config), **config["comparison"], "judged": judged}


def report(config: Mapping[str, Any]) -> dict[str, Any]:
    """Params of the study's description, which the report reads."""
    keys = (
        "run", "tokenizer", "features", "model", "arms", "study", "hypothesis", "comparison", "gate", "references",
    )  # fmt: skip
    corpus = without_before({k: v for k, v in config["corpus"].items() if k not in _PLACES}, Corpus)
    return {**{key: config[key] for key in keys}, "corpus": corpus}


_PLACES = ("path", "audio_root", "allow_pipes", "download", "expected")


def text_settings(text: Mapping[str, Any]) -> dict[str, Any]:
    """What a text's tokens are made with; where its files lie is not among it."""
    return {key: value for key, value in text.items() if key != "path"}


def algebra_text(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text of phases 2 and 3 of the algebra study."""
    return config["algebra"]["language"]["corpus"]


def text_key(text: Mapping[str, Any]) -> str:
    """Eight hex digits that name what a text's tokens are made with: data/language/<name>-<key>/."""
    return digest(text_settings(text))


def language_training(language: Mapping[str, Any], arm: str, seed: int) -> str:
    """Param of a training of a language study."""
    return settings_hash(language_training_settings(language, arm, seed), {})


def language_comparison(language: Mapping[str, Any]) -> dict[str, Any]:
    """Params of the comparison of a language study's arms."""
    judged = [expectation["holds"] for expectation in language["hypothesis"]]
    return {"study": language["study"], **language["comparison"], "judged": judged}


def language_report(language: Mapping[str, Any]) -> dict[str, Any]:
    """Params of a language study's description; the section has `run` beside its keys."""
    hidden = ("device", "threads", "save_minutes", "log_every", "detect_after", "tensorboard")
    training = {key: value for key, value in language["training"].items() if key not in hidden}
    return {**language, "training": training, "corpus": text_settings(language["corpus"])}


def all_trainings(config: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """(track, arm, seed) of each training of the speech study, and behind them those that the gate alone wants."""
    trainings = list(trainings_of(config["study"]))
    gate = config["gate"] or {}
    for anchor in filter(None, (gate, gate.get("fallback"))):
        trainings += [(anchor["track"], anchor["arm"], seed) for seed in anchor["seeds"]]
    return list(dict.fromkeys(trainings))


def stage_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Stage -> all that its rules are told, for every study of a configuration."""
    granite = config["granite"] or {}
    found = {
        "prepare": [
            {split: [split_key(config, split), preparation(config, split)] for split in splits_of(config)},
            config["corpus"]["expected"],
        ],
        "features": features(config),
        "tokenizer": tokenizer(config),
        "train": {f"{t}/{a}/{s}": training(config, a, s, t) for t, a, s in all_trainings(config)},
        "average": selection(config),
        "decode": {key: granite.get(key) for key in ("checkpoints", "decode", "ctc")},
        "score": [granite.get("normaliser"), scoring(config)],
        "gate": gate(config),
        "compare": comparison(config),
        "report": [report(config), granite_rows(config)],
    }
    algebra = (phase_study(config, phase) for phase in ("components", "architectures"))
    languages = ({"run": config["run"], **config["language"]}, *algebra)
    for study in (*map(_language_stages, languages), _phase_one(config), _speech_phase(config)):
        found = {stage: [value, study.get(stage)] for stage, value in found.items()}
    return found


def _language_stages(language: Mapping[str, Any]) -> dict[str, Any]:
    """Of a language study; `language` is its section with `run`."""
    if not language["arms"]:
        return {}
    return {
        "prepare": language["corpus"],
        "train": {
            f"{arm}/{seed}": language_training(language, arm, seed) for arm, seed in language_trainings_of(language)
        },
        "gate": language["gate"],
        "compare": language_comparison(language),
        "report": language_report(language),
    }


def _phase_one(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of phase 1, and of what the algebra study runs beside its phases: truncation and layers."""
    phase1 = config["algebra"]["representation"]
    jobs = [job_settings(phase1, task, arm) for task in phase1["tasks"] for arm in arms_of(task, phase1["arms"])]
    truncation, layers = config["algebra"]["truncation"], config["algebra"]["layers"]
    jobs += [cell_settings(truncation, cell.name) for cell in cells(truncation)]
    return {"train": [*jobs, layers], "report": [phase1, truncation, layers]}


def _speech_phase(config: Mapping[str, Any]) -> dict[str, Any]:
    if (speech := speech_phase_study(config)) is None:
        return {}
    return {
        "train": {f"{a}/{s}": training(speech, a, s, t) for t, a, s in trainings_of(speech["study"])},
        "average": selection(speech),
        "compare": comparison(speech),
        "report": report(speech),
    }
