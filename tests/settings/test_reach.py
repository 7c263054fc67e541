"""The table of reach: every key is changed in turn, and the stages that are told something else are those it names."""

import copy
from typing import Literal, get_args, get_origin

import pytest

from geomix.mixers.registry import MIXERS
from geomix.settings import load, resolve
from geomix.settings.arms import OWN
from geomix.settings.base import STAGES, Section
from geomix.settings.pages import keys, reach_of
from geomix.settings.replacements import READ_BY, LinearMap
from geomix.settings.stages import GENERATED, stage_settings
from tests.conftest import ROOT

KEYS = list(keys())
# keys that only one of the arms may have: learned signs start where signs_start says, whatever the kind
ARM = {"arms.NAME.signs": "grassmann", "language.arms.NAME.signs": "grassmann"}
ARM |= {f"{study}arms.NAME.projections.inner": "multivectors" for study in ("", "language.")}

# values that a key cannot just be moved to, beside what else must be there
SPECIAL = {
    "corpus.kind": "folder",
    "corpus.train": ["train-clean-360"],
    "corpus.dev": ["dev-clean"],
    "corpus.test": ["dev-clean", "dev-other", "test-clean", "test-other", "more"],
    "corpus.speed_factors": [0.8, 1.0],
    "model.width": 512,
    "model.kernel": 33,
    "model.intermediate_ctc": None,
    "model.intermediate_ctc.blocks": [4],
    "arms.NAME.heads": 8,
    "arms.NAME.width": 288,
    "arms.NAME.kernel": 31,
    "language.arms.NAME.kernel": 31,
    "arms.NAME.grades": [0, 1],
    "language.arms.NAME.grades": [0, 1],
    "language.arms.NAME.heads": 8,
    "language.model.width": 512,
    "language.corpus.vocabulary": 5000,
    "study.arms": ["attention", "grassmann", "symmetric", "no_mixer", "blocked"],
    "study.tracks": ["own"],
    "study.track_seeds": {"espnet": [0, 1]},
    "hypothesis.*.holds": "grassmann > attention",
    "language.hypothesis.*.holds": "grassmann > transformer",
    "language.comparison.margin": 1.5,
    "algebra.components.comparison.margin": 1.5,
    "algebra.architectures.comparison.margin": 1.5,
    "comparison.planned": [["grassmann", "attention"]],
    "language.comparison.planned": [["grassmann", "transformer"]],
    "language.study.arms": ["transformer", "grassmann", "symmetric"],
    "language.gate.arm": "grassmann_free",
    "gate": None,
    "language.gate": None,
    "gate.arm": "free",
    "arms.NAME.kind": "geometric",
    "language.arms.NAME.kind": "geometric",
    "language.arms.NAME.norm": "pre",
    "language.arms.NAME.positions": 64,
    "gate.fallback": None,
    "gate.targets.*.set": "dev-clean",
    "gate.fallback.targets.*.set": "dev-clean",
    "algebra.language.model.width": 128,
    "algebra.language.corpus.vocabulary": 900,
    "arms.NAME.projections.of": ["q"],
    "arms.NAME.projections.inner": 512,
    "language.arms.NAME.projections.inner": 512,
    "training.learning_rate_by_grade": [1.0, 0.5],
    "language.training.learning_rate_by_grade": [1.0, 0.5],
    "algebra.language.training.learning_rate_by_grade": [1.0, 0.5],
    "language.arms.NAME.projections.of": ["q"],
    **{f"{study}arms.NAME.{part}.groups": 8 for study in ("", "language.") for part in ("feed_forward", "projections")},
    **{
        f"{study}arms.NAME.{part}.grades": [0, 1]
        for study in ("", "language.")
        for part in ("feed_forward", "projections", "embedding")
    },
    "language.arms.NAME.embedding.signature": [2, 0, 0],
    "language.study.baseline": "transformer",
    "algebra.components.study.baseline": None,
    "algebra.architectures.study.baseline": None,
    "algebra.components.comparison.planned": [["scalar", "rope"]],
    "algebra.architectures.comparison.planned": [["clifford", "shuffled"]],
    "algebra.speech.comparison.planned": [["clifford", "shuffled"]],
    "algebra.representation.tasks": ["rotors_spin3", "analogy"],
    "algebra.representation.arms": ["clifford", "shuffled", "gauge", "all_plus", "dense"],
    "algebra.truncation.tasks": ["turn"],
    "algebra.truncation.dimensions": [4, 5],
    "algebra.truncation.grades": [1, "all"],
    "algebra.layers.adopted": ["continued", "clifford"],
    "algebra.layers.activations": ["norm"],
    "algebra.components.study.arms": ["scalar", "rope"],
    "algebra.architectures.study.arms": ["wide_scalar", "clifford"],
    "algebra.speech.study": None,
    "algebra.speech.study.arms": ["wide_scalar"],
    "granite": None,
    "granite.checkpoints.*.heads": ["decode"],
    "references.*.wer": {"test-clean": 1.0},
    "gate.fallback.arm": "blocked",
    "language.gate.high": 260.0,
    "references": [],
    "language.references": [],
}
# keys that allow one value, or whose change makes another mixer of an arm, with other keys
FIXED = (
    "features.mels", "arms.NAME.mixer", "arms.NAME.architecture", "language.arms.NAME.mixer", "gate.fallback.track",
    "algebra.language.corpus.kind", "algebra.components.arms", "algebra.architectures.arms", "algebra.speech.arms",
)  # fmt: skip
# the arm that is measured cannot wait for its own measurement
MEASURED = [
    ("arms.NAME.gated", "attention"),
    ("arms.NAME.gated", "e_branchformer"),
    ("language.arms.NAME.gated", "attention"),
]


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A configuration in which every key has something to change."""
    config = load(ROOT / "config" / "granite.yaml", base=ROOT / "config.yaml")
    config["arms"]["blocked"] = {"mixer": "blocked_attention"}
    (own := tmp_path_factory.mktemp("own") / "mine.py").write_text("class Mine:\n    pass\n")
    config["arms"]["own"] = {"mixer": f"{own}:Mine"}
    config["arms"]["multivectors"] = {"mixer": "multivector_attention"}
    config["arms"]["free"] = {"mixer": "pair", "rank": 8}
    config["arms"]["granite"] = {"architecture": "granite_encoder", "unmatched": True}
    config["language"]["arms"]["own"] = {"mixer": f"{own}:Mine"}
    config["study"] |= {
        "arms": [
            "attention",
            "grassmann",
            "symmetric",
            "no_mixer",
            "blocked",
            "multivectors",
            "own",
            "granite",
        ],
        "track_seeds": {"espnet": [0]},
    }
    config["model"]["intermediate_ctc"] = {"blocks": [8], "weight": 0.3, "self_conditioning": False}
    config["language"]["arms"]["multivectors"] = {"mixer": "multivector_attention"}
    config["language"]["study"]["arms"] = [*config["language"]["study"]["arms"], "multivectors", "own"]
    config["language"]["arms"]["grassmann_free"] = {"mixer": "pair", "rank": 16}
    config["algebra"]["speech"]["study"] = {"arms": ["wide_scalar", "clifford"], "seeds": [0]}
    for name, mixer in MIXERS.items():
        for study in (config, config["language"]) if mixer.causal else (config,):
            trained = [study["arms"][arm] for arm in study["study"]["arms"]]
            if name not in [arm.get("mixer") for arm in trained]:
                study["arms"][f"with_{name}"] = {"mixer": name}
                study["study"]["arms"] = [*study["study"]["arms"], f"with_{name}"]
    return resolve(config)


def place_of(config, key):
    """The dictionary that holds a key: of an arm of its kind that is trained, of the first entry of a list."""
    place, before = config, config
    for part in key.path.split(".")[:-1]:
        if part == "NAME":
            trained = [arm for arm in before["study"]["arms"] if of_kind(place[arm], key.kind)]
            others = [arm for arm in place if of_kind(place[arm], key.kind)]
            # the second of them has no twin that the change could make it equal to
            place = place[
                ARM[key.path] if key.path in ARM else trained[1] if len(trained) > 1 else (trained + others)[0]
            ]
        elif part == "*":
            place = next(iter(place.values())) if isinstance(place, dict) else place[0]
        else:
            before, place = place, place.setdefault(part, {})
    return place


def of_kind(arm, kind):
    return kind in (arm.get("architecture"), OWN if ":" in arm.get("mixer", "") else arm.get("mixer"))


def moved(value, annotation):
    """Another value of the type."""
    if hasattr(annotation, "__metadata__"):
        return moved(value, annotation.__origin__)
    kinds = [part for part in get_args(annotation) if part is not type(None)]
    if value is not None and type(None) in get_args(annotation) and len(kinds) == 1:
        return moved(value, kinds[0])
    if get_origin(annotation) is Literal:
        others = [each for each in get_args(annotation) if each != value]
        return others[0] if others else value
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.9 if value else 0.1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list) and value:
        return [*value[:-1], moved(value[-1], type(value[-1]))]
    if value is None or value in ({}, []):
        return filled((kinds or [annotation])[0])
    return value


def filled(annotation):
    if hasattr(annotation, "__metadata__"):
        return filled(annotation.__origin__)
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    if get_origin(annotation) is list:
        return [filled(get_args(annotation)[0])]
    if get_origin(annotation) is dict:
        return {}
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return {}
    return {int: 5, float: 0.5, str: "text", bool: True}[annotation]


@pytest.mark.parametrize(
    "key",
    [key for key in KEYS if key.path not in FIXED and (key.path, key.kind) not in MEASURED],
    ids=lambda key: f"{key.path}-{key.kind}",
)
def test_a_key_reaches_the_stages_that_it_names(full, key, tmp_path):
    before, name = copy.deepcopy(full), key.path.split(".")[-1]
    if key.path.startswith("corpus."):  # keys of a kind that generates its recordings
        before["corpus"]["kind"] = next((kind for kind, own in GENERATED.items() if name in own), "kaldi")
    if key.path.startswith("corpus.expected."):
        before["corpus"]["expected"] = {"train-clean-100": {}}
    if {"feed_forward", "projections"} & set(key.path.split(".")[:-1]):
        place_of(before, key).update(LinearMap(map=READ_BY.get(name, ("dense",))[-1]).model_dump())
    if key.path == "gate.track":  # else the gate's training is one of the study's on either track
        before["study"]["tracks"] = ["espnet"]
    after = copy.deepcopy(before)
    place = place_of(after, key)
    old = place.get(name)
    if key.path == "training.init_from":  # a model's folder; there is none such on the track espnet
        for config in (before, after):
            config["study"] |= {"tracks": ["own"], "track_seeds": {}}
        for file in ("model.safetensors", "tokens.txt"):
            (tmp_path / file).write_bytes(b"weights")
        SPECIAL[key.path] = str(tmp_path)
    place[name] = SPECIAL[key.path] if key.path in SPECIAL else moved(old, key.field.annotation)
    assert place[name] != old, "the test changes nothing"
    told_before, told_after = stage_settings(resolve(before)), stage_settings(resolve(after))
    assert [stage for stage in STAGES if told_before[stage] != told_after[stage]] == [
        stage for stage in STAGES if stage in reach_of(key.field)
    ]
