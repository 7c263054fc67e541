"""The whole configuration: reading files and overlays, checking them, and filling in every default."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from geomix.errors import UserError
from geomix.mixers.own import source as own
from geomix.settings.algebra import AlgebraStudy, Architectures, Components
from geomix.settings.arms import LANGUAGE_ARMS, SPEECH_ARMS, OwnMixerArm, SpeechArm, name_of
from geomix.settings.base import Name, Section, key, resolved, section_of
from geomix.settings.checks import check_config
from geomix.settings.explain import explain
from geomix.settings.language import Language
from geomix.settings.speech import Augmentation, Corpus, Decoding, Features, Model, Tokenizer, Training
from geomix.settings.study import Comparison, Expectations, Gate, Granite, Reference, Study


class Config(Section):
    """A configuration of geomix: config.yaml with its overlays."""

    run: Name = key(..., "results/<run>/ holds what this study finds", "report")
    corpus: Corpus = key(..., "the recordings")
    features: Features = key({}, "what the models read")
    tokenizer: Tokenizer = key({}, "the units of text")
    model: Model = key({}, "the model that all arms share")
    arms: dict[Name, SpeechArm] = key(..., "arms by name: what each puts into the mixer slot", "train report")
    study: Study = key(..., "what is run")
    hypothesis: Expectations = key([], "what is expected, written before the run")
    comparison: Comparison = key({}, "which differences were planned")
    gate: Gate | None = key(
        None, "what the baseline must reach first; null: a study without a gate", "train gate report"
    )
    training: Training = key({}, "how the arms are trained")
    augmentation: Augmentation = key({}, "SpecAugment")
    decoding: Decoding = key({}, "how hypotheses are made")
    references: list[Reference] = key([], "published rows, printed for scale, never as ours", "report")
    granite: Granite | None = key(None, "published checkpoints as reference rows; null: none", "decode score report")
    language: Language = key({}, "the language study, `snakemake language`")
    algebra: AlgebraStudy = key({}, "the algebra study, `snakemake algebra`")


def load(*overlays: str | os.PathLike, base: str | os.PathLike = "config.yaml") -> dict[str, Any]:
    """Read `base` and lay each overlay over it as Snakemake does: dictionaries merge deeply, lists are replaced.

    Returns the checked configuration with every default filled in; raises `UserError` naming the file or key at fault.
    """
    return resolve(read_layers(base, *overlays))


def read_layers(*paths: str | os.PathLike) -> dict[str, Any]:
    """YAML files laid over each other, the first at the bottom, as they stand."""
    config: dict[str, Any] = {}
    for path in paths:
        config = merge(config, read_layer(path))
    return config


def read_layer(path: str | os.PathLike) -> dict[str, Any]:
    """One configuration file; `UserError` for what is no YAML dictionary, and for a key that stands twice, of which one would be lost."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            seen = set()
            for name in (each for each, _ in node.value if isinstance(each, yaml.ScalarNode)):
                if name.value in seen:
                    line = name.start_mark.line + 1
                    raise UserError(f"{path}: line {line} has the key {name.value!r} a second time: leave one out")
                seen.add(name.value)
            return super().construct_mapping(node, deep)

    try:
        layer = yaml.load(Path(path).read_text(encoding="utf-8-sig"), Loader)
    except FileNotFoundError:
        raise UserError(f"{path}: no such configuration file; run from the project's root or name another") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # of a number, a date or a nesting that Python cannot hold
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())[:300]}: correct it") from None
    if not isinstance(layer, dict):
        raise UserError(f"{path}: a configuration is a dictionary of keys, not {type(layer).__name__}")
    return layer


def merge(under: Any, over: Any) -> Any:
    """`over` laid over `under`."""
    if isinstance(under, dict) and isinstance(over, dict):
        merged = dict(under)
        for name, value in over.items():
            merged[name] = merge(under[name], value) if name in under else value
        return merged
    return copy.deepcopy(over)


def resolve(config: Mapping[str, Any]) -> dict[str, Any]:
    """A merged configuration, checked, as plain values with every default filled in; `UserError` names the key at fault."""
    plain = _plain(config)
    try:
        checked = Config.model_validate(plain)
    except ValidationError as error:
        raise UserError("config: " + explain(error, plain, lambda path: _keys_at(plain, path))) from None
    found = resolved(checked)
    _read_own_mixers(found["arms"])
    check_config(found)
    return found


def _read_own_mixers(arms: dict[str, dict[str, Any]]) -> None:
    """Check the arms with a mixer of the user's own against its file, and note the hash of that in them."""
    for name, arm in arms.items():
        if not own.is_own(arm.get("mixer")):
            continue
        try:
            arm.pop(own.HASH, None)  # of a configuration that was resolved before
            source = own.find(arm)
            source.check({key: value for key, value in own.arguments_in(arm).items() if key not in _OF_THE_ARM})
        except UserError as error:
            raise UserError(f"config: arms.{name}: {error}") from None
        arm[own.HASH] = source.hash


_OF_THE_ARM = tuple(OwnMixerArm.model_fields)


def _plain(value: Any) -> Any:
    """Dictionaries and lists alone: Snakemake hands over classes of its own."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _keys_at(config: Any, path: list) -> list[str]:
    """Keys that the section at `path` takes."""
    section: Any = Config
    arms: tuple = ()
    for part in path:
        config = config[part] if isinstance(config, Mapping | list) else None
        if arms:
            section, arms = _arm_at(config, arms), ()
            continue
        annotation = section.model_fields[part].annotation if section and part in section.model_fields else None
        if part == "arms":
            arms = LANGUAGE_ARMS if section in (Language, Components, Architectures) else SPEECH_ARMS
            continue
        section = section_of(annotation) if annotation is not None else section
    return list(section.model_fields) if section else []


def _arm_at(arm: Any, known: tuple) -> type[Section] | None:
    name = (arm.get("architecture") or arm.get("mixer")) if isinstance(arm, Mapping) else None
    return next((section for section in known if name_of(section) == name), None)
