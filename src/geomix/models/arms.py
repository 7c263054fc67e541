"""Arms of a study: a mixer by name and arguments, the same model around it, and a matched parameter count."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.models.architectures import model_config
from geomix.models.config.conformer import ConformerConfig
from geomix.models.config.maps import Block, describe_block
from geomix.models.config.transformer_lm import LanguageModelConfig
from geomix.models.flops import parameter_count, train_flops_per_audio_second
from geomix.settings import BASELINE, E_BRANCHFORMER, language_training_settings
from geomix.settings.replacements import split_replaced
from geomix.settings.trainings import taken_of_model

TOLERANCE = 0.05  # largest deviation from the reference's parameter count, as a fraction


def arm_config(config: Mapping[str, Any], arm: str, vocab: int | None = None, seed: int = 0) -> ConformerConfig:
    """Model of one arm of a study.

    Args:
        config: the study's configuration: `model` (common to all arms), `arms` (name to {mixer, ...arguments, ff_dim,
            gated, unmatched}), `tokenizer.size`.
        arm: name of the arm.
        vocab: output units; by default `tokenizer.size`.
        seed: of the run; it draws the signed arm's table.
    """
    arms = config.get("arms") or {}
    if arm not in arms:
        raise UserError(f"arms: no arm {arm!r}; the arms are {', '.join(arms)}")
    definition = dict(arms[arm])
    if vocab is None:
        vocab = (config.get("tokenizer") or {}).get("size")
        if vocab is None:
            raise UserError(
                "tokenizer.size: not given, so the number of output units is the trained tokenizer's: say it"
            )
    if "architecture" in definition:  # another model altogether: nothing of `model` is its
        own = {key: value for key, value in definition.items() if key not in ("gated", "unmatched")}
        return model_config({**own, "vocab": vocab})
    if "mixer" not in definition:
        raise UserError(f"arms.{arm}: no mixer; give it one by name, e.g. mixer: attention")
    for key in ("gated", "unmatched"):
        definition.pop(key, None)
    taken = taken_of_model(definition)
    replaced = split_replaced(definition)
    model = dict(config.get("model") or {})
    for key in ("vocab", "mixer", "seed"):
        if key in model:
            raise UserError(f"model.{key}: not a key of the common model; {_BELONGS[key]}")
    return ConformerConfig.from_dict(
        {**model, **taken, "vocab": vocab, "mixer": definition, "replaced": replaced, "seed": seed}
    )


_BELONGS = {
    "vocab": "the number of output units is tokenizer.size",
    "mixer": "the mixer belongs to an arm",
    "seed": "seeds are listed in study.seeds",
}


@dataclass(frozen=True)
class ArmSize:
    """One arm's size: exact parameters, their deviation from attention's (fraction), training FLOPs per audio-second.

    replaced : what is replaced beside the mixer
    from_linear_maps : whether the FLOPs of a user's own mixer are taken to be those of its linear maps
    """

    arm: str
    mixer: dict[str, Any]
    replaced: dict[str, Any]
    parameters: int
    deviation: float
    flops_per_audio_second: float
    unmatched: bool
    from_linear_maps: bool = False


def arm_sizes(config: Mapping[str, Any], vocab: int | None = None) -> list[ArmSize]:
    """Sizes of all arms in the order of the configuration; of ESPnet's own models there is no build here."""
    arms = config.get("arms") or {}
    if BASELINE not in arms:
        raise UserError(f"arms: no arm {BASELINE!r}, to whose parameter count the others are matched; add it")
    reference = parameter_count(arm_config(config, BASELINE, vocab))
    sizes = []
    for arm, definition in arms.items():
        if definition.get("architecture") == E_BRANCHFORMER:
            continue
        model = arm_config(config, arm, vocab)
        count = parameter_count(model)
        sizes.append(
            ArmSize(
                arm=arm,
                mixer=dict(getattr(model, "mixer", None) or {"mixer": definition["architecture"]}),
                replaced=dict(getattr(model, "replaced", {})),
                parameters=count,
                deviation=count / reference - 1,
                flops_per_audio_second=train_flops_per_audio_second(model),
                unmatched=bool(definition.get("unmatched", False)),
                from_linear_maps=getattr(model, "counted_from_linear_maps", False),
            )
        )
    return sizes


def check_matched(config: Mapping[str, Any], vocab: int | None = None) -> list[ArmSize]:
    """Refuse an arm whose count is more than 5 % from attention's, unless it says `unmatched: true`; return all sizes."""
    sizes = arm_sizes(config, vocab)
    for size in sizes:
        if abs(size.deviation) > TOLERANCE and not size.unmatched:
            raise UserError(
                f"arms.{size.arm}: {size.parameters:,} parameters are {100 * size.deviation:+.1f} % from {BASELINE}'s, beyond "
                f"{100 * TOLERANCE:.0f} %: change its ff_dim, or mark it with unmatched: true"
            )
    return sizes


def check_arm(config: Mapping[str, Any], arm: str, tokens: str | os.PathLike) -> None:
    """Refuse to train an arm whose size `check_matched` refuses; tokens.txt has a line for each output unit."""
    if config["arms"][arm].get("architecture") == E_BRANCHFORMER:
        return
    units = len(Path(tokens).read_text(encoding="utf-8").splitlines())
    check_matched({**config, "arms": {name: config["arms"][name] for name in (BASELINE, arm)}}, units)


@dataclass(frozen=True)
class LanguageArmSize:
    """One arm of a language study: exact parameters, their deviation from the baseline's (fraction), training FLOPs a token.

    deviation : None in a study without a baseline
    replaced : what is replaced beside the mixer; block : its feed-forward block, where that is replaced
    from_linear_maps : as of `ArmSize`
    """

    arm: str
    mixer: dict[str, Any]
    replaced: dict[str, Any]
    parameters: int
    deviation: float | None
    flops_per_token: float
    unmatched: bool
    block: Block | None
    from_linear_maps: bool = False


def language_sizes(language: Mapping[str, Any], vocab: int) -> list[LanguageArmSize]:
    """Sizes of the arms that a language study runs; `language` is its section, `vocab` the pieces of its vocabulary."""
    study = language["study"]
    configs = {}
    for arm in study["arms"]:
        seed = (language["arms"][arm].get("seeds") or study["seeds"])[0]
        model = language_training_settings(language, arm, seed)["model"]
        configs[arm] = LanguageModelConfig.from_dict({**model, "vocab": vocab, "seed": seed})
    base = configs[study["baseline"]].parameters() if study["baseline"] else None
    return [
        LanguageArmSize(
            arm=arm,
            mixer=dict(config.mixer),
            replaced=dict(config.replaced),
            parameters=config.parameters(),
            deviation=config.parameters() / base - 1 if base else None,
            flops_per_token=6 * config.macs_per_token(config.positions),
            unmatched=language["arms"][arm]["unmatched"],
            block=(spec := config.replacements.feed_forward)
            and describe_block(spec, config.width, config.ff_dim, config.seed),
            from_linear_maps=config.counted_from_linear_maps,
        )
        for arm, config in configs.items()
    ]


def check_language_matched(language: Mapping[str, Any], vocab: int) -> list[LanguageArmSize]:
    """Refuse an arm whose count is more than 5 % from the baseline's, unless it says `unmatched: true`; return all sizes."""
    sizes = language_sizes(language, vocab)
    for size in sizes:
        if size.deviation is not None and abs(size.deviation) > TOLERANCE and not size.unmatched:
            raise UserError(
                f"{language['run']}: arm {size.arm}: {size.parameters:,} parameters are {100 * size.deviation:+.1f} % from "
                f"{language['study']['baseline']}'s, beyond {100 * TOLERANCE:.0f} %: change its ff_dim, or mark it with unmatched: true"
            )
    return sizes
