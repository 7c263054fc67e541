"""Arms: what each replaces in the model, the mixer above all, and how the study treats it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import ConfigDict, Discriminator, Field, Tag, create_model

from geomix.mixers.base import Arguments
from geomix.mixers.own.source import is_own
from geomix.mixers.registry import MIXERS
from geomix.settings.base import Count, NotNegative, Odd, Positive, Rate, Section, Seeds, key, override
from geomix.settings.replacements import (
    WITH_PROJECTIONS,
    FeedForwardReplaced,
    Positions,
    ProjectionsReplaced,
    TextReplaced,
)

STUDY_KEYS = ("gated", "unmatched", "seeds")
"""Keys of an arm that say how the study treats it, not what is trained."""


class _Treated(Section):
    gated: bool = key(False, "wait until the baseline has passed the gate", "report")
    unmatched: bool = key(False, "may differ by more than 5 % in size from the baseline", "report")


class _SpeechArm(_Treated, FeedForwardReplaced):
    ff_dim: Count | None = override("inner width of this arm's feed-forward maps", "train report")
    conv_kernel: Odd | None = override(
        "this arm's model.kernel: frames of the Conformer's own convolution, odd", "train report"
    )


OWN = "FILE.py:Class"
"""Stands for the name of any mixer of a user's own."""


class _OwnMixer(Section):
    model_config = ConfigDict(extra="allow")
    mixer: Annotated[str, Field(pattern=":")] = key(
        ..., "path/to/file.py:Class or package.module:Class; other keys are its constructor's arguments", "train report"
    )


class OwnMixerArm(_SpeechArm, _OwnMixer):
    """A mixer of your own in the Conformer; its other keys are the arguments of its constructor."""


class GraniteEncoderArm(_Treated):
    """A small Granite encoder instead of the Conformer: nothing of `model` is its."""

    architecture: Literal["granite_encoder"] = key(..., "Granite Speech's encoder with CTC", "train report")
    blocks: Count = key(6, "Conformer blocks of Granite's kind", "train report")
    width: Count = key(144, "model width", "train report")
    heads: Count = key(4, "attention heads", "train report")
    ff_mult: Count = key(4, "inner width of the feed-forward maps over the width", "train report")
    kernel: Count = key(15, "frames of the depthwise convolution", "train report")
    context: Count = key(200, "frames of 20 ms in a block of attention", "train report")
    dropout: Rate = key(0.1, "probability of dropout", "train report")
    middle_weight: Rate = key(0.3, "the middle CTC head's share of the loss", "train report")


class EBranchformerArm(_Treated):
    """ESPnet's own E-Branchformer: an anchor of the gate on the track espnet."""

    architecture: Literal["e_branchformer"] = key(..., "ESPnet's E-Branchformer, 12 blocks", "train report")


class _LanguageArm(_Treated, FeedForwardReplaced, TextReplaced):
    blocks: Count | None = override("this arm's language.model.blocks", "train report")
    positions: Count | Positions | None = override(
        "this arm's language.model.positions, or what stands for the learned position table", "train report"
    )
    norm: Literal["post", "pre"] | None = override("this arm's language.model.norm", "train report")
    init_std: Positive | None = override("this arm's language.model.init_std", "train report", null_is_a_value=True)
    extra_linear: bool | None = override("this arm's language.model.extra_linear", "train report")
    ff_dim: Count | None = override("this arm's language.model.ff_dim", "train report")
    batch: Count | None = override("this arm's language.training.batch", "train report")
    learning_rate: Positive | None = override("this arm's language.training.learning_rate", "train report")
    warmup: Count | None = override("this arm's language.training.warmup", "train report")
    learning_rate_by_grade: list[NotNegative] | None = override(
        "this arm's language.training.learning_rate_by_grade", "train report"
    )
    clip: NotNegative | None = override("this arm's language.training.clip", "train report")
    weight_decay: NotNegative | None = override("this arm's language.training.weight_decay", "train report")
    seeds: Seeds | None = override("this arm's seeds instead of the study's", "train report")


class OwnMixerLanguageArm(_LanguageArm, _OwnMixer):
    """A causal mixer of your own in the language model; its other keys are the arguments of its constructor."""


# a tag never looks like a key, so that error messages can leave it out of a key's path
TAG = "arm:"


def name_of(arm: type[Section]) -> str:
    """The mixer or architecture that an arm's section is of."""
    field = arm.model_fields.get("architecture") or arm.model_fields["mixer"]
    return OWN if issubclass(arm, _OwnMixer) else get_args(field.annotation)[0]


def _tag(value: Any) -> str | None:
    get = value.get if isinstance(value, Mapping) else lambda name: getattr(value, name, None)
    name = get("architecture") or get("mixer")
    return f"{TAG}{OWN if is_own(name) else name}" if isinstance(name, str) else None


def _section(base: type[Section], mixer: str, arguments: type[Arguments]) -> type[Section]:
    """The section of the arms with a mixer: what the study says of an arm, and the mixer's own arguments."""
    title = "".join(part.title() for part in mixer.split("_"))
    name = f"{'Language' if base is _LanguageArm else ''}{title}Arm"
    bases = (base, ProjectionsReplaced, arguments) if mixer in WITH_PROJECTIONS else (base, arguments)
    return create_model(name, __base__=bases, __module__=__name__, __doc__=arguments.__doc__)


def _any_of(arms: Sequence[type[Section]], title: str) -> Any:
    members = tuple(Annotated[arm, Tag(f"{TAG}{name_of(arm)}")] for arm in arms)
    return Annotated[Union[members], Discriminator(_tag), Field(title=title)]  # noqa: UP007


SPEECH_ARMS = (
    *(_section(_SpeechArm, name, mixer.arguments) for name, mixer in MIXERS.items()),
    OwnMixerArm,
    GraniteEncoderArm,
    EBranchformerArm,
)
LANGUAGE_ARMS = (
    *(_section(_LanguageArm, name, mixer.causal) for name, mixer in MIXERS.items() if mixer.causal),
    OwnMixerLanguageArm,
)
SpeechArm = _any_of(SPEECH_ARMS, "arm")
LanguageArm = _any_of(LANGUAGE_ARMS, "language arm")
