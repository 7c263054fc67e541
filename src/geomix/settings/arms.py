"""Arms: what each puts into the model's mixer slot, and how the study treats it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from geomix.mixers.arguments import Attention, BlockedAttention, CausalPair, NoMixer, Pair
from geomix.settings.base import Count, NotNegative, Positive, Rate, Section, Seeds, key, override

STUDY_KEYS = ("gated", "unmatched", "seeds")
"""Keys of an arm that say how the study treats it, not what is trained."""


class _Treated(Section):
    gated: bool = key(False, "wait until the baseline has passed the gate", "report")
    unmatched: bool = key(False, "may differ by more than 5 % in size from the baseline", "report")


class _SpeechArm(_Treated):
    ff_dim: Count | None = override("inner width of this arm's feed-forward maps", "train report")


class AttentionArm(_SpeechArm, Attention):
    """Self-attention in the Conformer."""


class BlockedAttentionArm(_SpeechArm, BlockedAttention):
    """Attention within blocks in the Conformer."""


class PairArm(_SpeechArm, Pair):
    """A pair mixer in the Conformer."""


class NoMixerArm(_SpeechArm, NoMixer):
    """The Conformer without a mixer."""


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


class _LanguageArm(_Treated):
    norm: Literal["post", "pre"] | None = override("this arm's language.model.norm", "train report")
    init_std: Positive | None = override("this arm's language.model.init_std", "train report")
    extra_linear: bool | None = override("this arm's language.model.extra_linear", "train report")
    ff_dim: Count | None = override("this arm's language.model.ff_dim", "train report")
    learning_rate: Positive | None = override("this arm's language.training.learning_rate", "train report")
    warmup: Count | None = override("this arm's language.training.warmup", "train report")
    clip: NotNegative | None = override("this arm's language.training.clip", "train report")
    weight_decay: NotNegative | None = override("this arm's language.training.weight_decay", "train report")
    seeds: Seeds | None = override("this arm's seeds instead of the study's", "train report")


class LanguageAttentionArm(_LanguageArm, Attention):
    """Causal self-attention in the language model."""


class LanguagePairArm(_LanguageArm, CausalPair):
    """A pair mixer of past partners in the language model."""


# a tag never looks like a key, so that error messages can leave it out of a key's path
TAG = "arm:"


def _tag(value: Any, attribute: str = "mixer") -> str | None:
    get = value.get if isinstance(value, Mapping) else lambda name: getattr(value, name, None)
    name = get("architecture") or get(attribute)
    return f"{TAG}{name}" if isinstance(name, str) else None


SpeechArm = Annotated[
    Annotated[AttentionArm, Tag("arm:attention")]
    | Annotated[BlockedAttentionArm, Tag("arm:blocked_attention")]
    | Annotated[PairArm, Tag("arm:pair")]
    | Annotated[NoMixerArm, Tag("arm:none")]
    | Annotated[GraniteEncoderArm, Tag("arm:granite_encoder")]
    | Annotated[EBranchformerArm, Tag("arm:e_branchformer")],
    Discriminator(_tag),
    Field(title="arm"),
]
LanguageArm = Annotated[
    Annotated[LanguageAttentionArm, Tag("arm:attention")] | Annotated[LanguagePairArm, Tag("arm:pair")],
    Discriminator(_tag),
    Field(title="language arm"),
]
SPEECH_ARMS = (AttentionArm, BlockedAttentionArm, PairArm, NoMixerArm, GraniteEncoderArm, EBranchformerArm)
LANGUAGE_ARMS = (LanguageAttentionArm, LanguagePairArm)
