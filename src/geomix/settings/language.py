"""Sections of the language study (e01)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geomix.settings.arms import LanguageArm
from geomix.settings.base import Count, Name, Names, NotNegative, Positive, Rate, Section, Seeds, key, override
from geomix.settings.speech import TrainerKeys
from geomix.settings.study import Expectations


class Text(Section):
    """The text and its pieces."""

    name: Name = key("wikitext-2-raw", "prepared tokens lie in data/language/<name>-<key>/", "prepare report")
    kind: Literal["wikitext", "builtin"] = key(
        "wikitext", "WikiText-2, or the documentation topics that every CPython carries", "prepare report"
    )
    version: Literal["raw", "tokenised"] = key(
        "raw", "tokenised: rare words replaced by <unk>; other text, perplexities not comparable", "prepare report"
    )
    path: str | None = key(None, "folder with the three splits, or the zip archive; null: downloaded", "prepare")
    unk: str | None = key(None, "what <unk> becomes, a piece such as [UNK]; null: left as it stands", "prepare report")
    vocabulary: str | Annotated[int, Field(ge=100)] | None = key(
        None, "a WordPiece file, or the number of pieces to train; null: bert-base-uncased, downloaded",
        "prepare report",
    )  # fmt: skip


class LanguageModel(Section):
    """The Transformer that all arms share."""

    positions: Count = key(128, "tokens in a block; each block predicts its next tokens", "train report")
    blocks: Count = key(6, "layers", "train report")
    width: Count = key(256, "model width", "train report")
    ff_dim: Count = key(1024, "inner width of the feed-forward maps", "train report")
    dropout: Rate = key(0.1, "of the embedding and of both sub-blocks' outputs", "train report")
    norm: Literal["post", "pre"] = key("post", "LayerNorm after or before the sub-blocks", "train report")
    init_std: Positive | None = key(
        None, "standard deviation of all weights; null: torch's own, embeddings N(0, 1)", "train report"
    )
    extra_linear: bool = key(
        False, "a width x width map after the mixer, by which the paper's counts exceed its equations", "train report"
    )


class LanguageTraining(TrainerKeys):
    """The recipe that reproduced the paper's Transformer."""

    epochs: Count = key(30, "passes over the training text", "train report")
    batch: Count = key(32, "blocks of a batch", "train report")
    accumulation: Count = key(1, "batches of an optimiser step", "train report")
    optimizer: Literal["adam", "adamw"] = key(
        "adamw", "Adam, or AdamW, whose weight decay is decoupled", "train report"
    )
    learning_rate: Positive = key(0.001, "peak of the learning rate", "train report")
    weight_decay: Annotated[float, Field(ge=0)] = key(0.01, "weight decay of all parameters", "train report")
    learning_rate_by_grade: list[NotNegative] = key(
        [],
        "factors on the learning rate of what a multivector layer holds in grade 0, 1, ...; grades beyond the list and all else: 1",
        "train report",
        before=[],
    )
    max_updates: Count | None = key(None, "stop after so many optimiser steps; null: after the epochs", "train report")
    schedule: Literal["warmup", "cosine_per_epoch", "constant"] = key(
        "cosine_per_epoch", "linear rise, then one over the square root; towards 0 over the epochs; constant",
        "train report",
    )  # fmt: skip
    warmup: Count = key(1, "optimiser steps of the rise; 1: none", "train report")
    clip: Annotated[float, Field(ge=0)] = key(0.0, "largest gradient norm; 0: no limit", "train report")
    precision: Literal["auto", "fp32", "bf16"] = key(
        "fp32", "auto: bf16 autocast on a GPU, fp32 elsewhere", "train report"
    )
    detect_after: Count | None = key(
        2000, "optimiser steps after which a training no better than the unigram table is stopped; null: never"
    )


class LanguageStudy(Section):
    """What is run."""

    arms: Names = key(
        ["transformer", "grassmann", "symmetric", "one_offset"],
        "arms that are trained and compared",
        "train compare report",
    )
    seeds: Seeds = key([0, 1, 2], "seeds of each arm", "train compare report")
    baseline: Name | None = key(
        None, "arm to whose size the others are matched within 5 %; null: sizes are not compared", "compare report"
    )


class LanguageComparison(Section):
    """Planned contrasts of the language study."""

    planned: list[Annotated[list[Name], Field(min_length=2, max_length=2)]] = key(
        [], "contrasts [a, b] that were planned", "compare report"
    )
    margin: Annotated[float, Field(gt=1)] | None = key(
        None, "ratio of perplexities below which arms count as equal, stated before the run; null: none",
        "compare report",
    )  # fmt: skip


class LanguageGate(Section):
    """Gated arms wait until the Transformer has reproduced the published validation perplexity."""

    arm: Name = key("transformer", "the arm that is measured", "gate report")
    seeds: Seeds = key([0], "its seeds; their mean is measured", "gate report")
    low: Annotated[float, Field(gt=1)] | None = key(None, "least validation perplexity; null: no bound", "gate report")
    high: Annotated[float, Field(gt=1)] | None = key(
        None, "largest validation perplexity; null: no bound", "gate report"
    )
    source: str | None = key(None, "where the range was published; null: a target of our own", "gate report")
    mode: Literal["enforce", "record"] = key("enforce", "record: note a miss and go on", "gate report")


class LanguageReference(Section):
    """A published row, printed for scale."""

    system: str = key(..., "name of the system", "report")
    parameters: Count | None = override("its size, as published", "report")
    source: str = key(..., "where it was published", "report")
    valid: float | None = override("validation perplexity", "report")
    test: float | None = override("test perplexity", "report")


class Language(Section):
    """The language study: the same mixers in causal language models on WikiText-2."""

    corpus: Text = key({}, "the text")
    model: LanguageModel = key({}, "the model that all arms share")
    arms: dict[Name, LanguageArm] = key({}, "arms by name")
    study: LanguageStudy = key({}, "what is run")
    hypothesis: Expectations = key([], "what is expected, written before the run")
    comparison: LanguageComparison = key({}, "which differences were planned")
    gate: LanguageGate | None = key(
        None, "what the baseline must reach first; null: a study without a gate", "gate report"
    )
    training: LanguageTraining = key({}, "how the arms are trained")
    references: list[LanguageReference] = key([], "published rows", "report")
