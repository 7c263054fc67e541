"""Arguments of the mixers of the house, without torch: what a configuration may say of each, and its version.

A mixer's `version` rises with every change of its code that changes its output: trainings of the version before then
count as other trainings. Golden outputs (tests/mixers/test_golden.py) fail with that sentence when it was forgotten.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _unique(values: list[int]) -> list[int]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"lists {value} twice: leave one out")
    return values


Count = Annotated[int, Field(ge=1)]


class Arguments(BaseModel):
    """Arguments of one mixer; `mixer` is its name. Fields are documented by their descriptions."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    version: ClassVar[int] = 1


def argument(default, meaning: str, before=None, **bounds):
    """An argument of a mixer: it decides what is trained. `before`, of one that was added later: see `settings.base.key`."""
    extra = {"reach": ["train", "report"]} | ({} if before is None else {"before": before})
    factory = {"default_factory": lambda: list(default)} if isinstance(default, list) else {"default": default}
    return Field(description=meaning, json_schema_extra=extra, **factory, **bounds)


class Attention(Arguments):
    """Relative-position self-attention in the Conformer, causal attention in the language model."""

    mixer: Literal["attention"] = argument(..., "self-attention")
    heads: Count = argument(4, "attention heads; they must divide the width")


class BlockedAttention(Arguments):
    """Granite Speech's attention within blocks, linear in the length."""

    mixer: Literal["blocked_attention"] = argument(..., "attention within blocks")
    heads: Count = argument(4, "attention heads; they must divide the width")
    context: Count = argument(100, "frames in a block")


class CausalPair(Arguments):
    """The pair mixer with past partners alone, as the language model has it."""

    mixer: Literal["pair"] = argument(..., "pairs of tokens at fixed offsets")
    kind: Literal["wedge", "symmetric", "signed", "geometric"] = argument(
        "wedge",
        "product of a pair: wedge (Plücker coordinates), symmetric, signed (random signs, drawn from the seed) or geometric",
    )
    rank: Annotated[int, Field(ge=2)] = argument(32, "width to which a token is reduced before it is paired")
    offsets: Annotated[list[Count], Field(min_length=1), AfterValidator(_unique)] = argument(
        [1, 2, 4, 8, 12, 16], "distances to the partners, in frames or tokens"
    )
    one_offset_per_block: bool = argument(False, "block i uses offset i alone, the list repeated")
    form: Literal["anchored", "paper"] = argument("anchored", "the exact fast rewrite, or the paper's own steps")
    empty: Literal["zero", "bias"] = argument("zero", "what a token without a partner receives")
    min_sine: Annotated[float, Field(ge=0, le=1)] = argument(
        1e-3, "sine below which a thin pair is no longer normalised to length 1"
    )


class Pair(CausalPair):
    """The pair mixer: wedge, symmetric, signed or geometric products of a frame with its partners, gated."""

    two_sided: bool = argument(True, "partners on both sides; false: in the past alone")


class NoMixer(Arguments):
    """An empty mixer slot."""

    mixer: Literal["none"] = argument(..., "no mixer")


ARGUMENTS = {
    "attention": Attention,
    "blocked_attention": BlockedAttention,
    "pair": Pair,
    "none": NoMixer,
}
"""Name in a configuration -> arguments."""
