"""Sections of the algebra study: the k-blade article's four phases, with their controls."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geomix.settings.base import Count, Name, NotNegative, Positive, Rate, Section, Seeds, Unique, key

Task = Literal[
    "fixed_rotation", "rotors_spin3", "rotors_spin4", "versors_pin3", "intersection", "orientation", "analogy", "plane",
    "null_teacher", "null_product",
]  # fmt: skip
RepresentationArm = Literal[
    "clifford", "shuffled", "gauge", "all_plus", "other_signature", "mixed_signature", "dense", "wide_dense", "low_rank",
    "complex", "quaternion", "grouped",
]  # fmt: skip
Component = Literal["scalar", "embeddings", "embeddings_graded", "qk", "positions", "rope", "values"]
Architecture = Literal[
    "ordinary", "wide_scalar", "low_rank", "complex", "quaternion", "grouped", "clifford", "shuffled",
    "clifford_two_sided", "shuffled_two_sided", "scalar_flops",
]  # fmt: skip


# tasks whose models phase 4 looks into, and arms whose weights are kept for it
INSPECTED_TASKS = ("rotors_spin3", "analogy")
INSPECTED_ARMS = ("clifford", "shuffled", "dense")


def _listed(kind):
    return Annotated[list[kind], Field(min_length=1), Unique]


class Representation(Section):
    """Phase 1: synthetic problems whose geometry is known."""

    tasks: _listed(Task) = key(list(Task.__args__), "problems", "train report")
    arms: _listed(RepresentationArm) = key(list(RepresentationArm.__args__), "tables and controls", "train report")
    tables: Count = key(8, "tables of random signs", "train report")
    gauge_tables: Count = key(2, "the Clifford table under other names, which must tie", "train report")
    seeds: Seeds = key([10, 11, 12], "of data and initial weights", "train report")
    steps: Count = key(1000, "full-batch steps of Adam", "train report")
    learning_rate: Positive = key(0.01, "of Adam", "train report")
    rotations: Count = key(32, "of the fixed rotation", "train report")


class AlgebraText(Section):
    """The text of phases 2 and 3."""

    name: Name = key("python-docs-1000", "prepared tokens lie in data/language/<name>-<key>/", "prepare")
    kind: Literal["builtin"] = key("builtin", "the documentation topics that every CPython carries", "prepare")
    vocabulary: Annotated[int, Field(ge=100)] = key(1000, "pieces to train", "prepare")


class AlgebraModel(Section):
    """The small Transformer of phases 2 and 3."""

    positions: Count = key(64, "tokens in a block", "train")
    blocks: Count = key(2, "layers", "train")
    width: Annotated[int, Field(ge=16, multiple_of=16)] = key(64, "model width, a multiple of 16", "train")
    ff_dim: Count = key(128, "inner width of the feed-forward maps", "train")
    dropout: Rate = key(0.1, "probability of dropout", "train")
    norm: Literal["post", "pre"] = key("post", "LayerNorm after or before the sub-blocks", "train")
    init_std: Positive | None = key(0.05, "standard deviation of all weights; null: torch's own", "train")


class AlgebraTraining(Section):
    """Training of phases 2 and 3: AdamW, a cosine over the epochs."""

    epochs: Count = key(2, "passes over the text", "train")
    batch: Count = key(16, "blocks of a batch", "train")
    max_updates: Count | None = key(None, "stop after so many optimiser steps; null: after the epochs", "train")
    learning_rate: Positive = key(0.003, "peak of the learning rate", "train")
    weight_decay: NotNegative = key(0.01, "weight decay of all parameters", "train")
    warmup: Count = key(20, "optimiser steps of the rise", "train")
    clip: NotNegative = key(1.0, "largest gradient norm; 0: no limit", "train")
    log_every: Count = key(200, "optimiser steps between two lines of progress")


class AlgebraLanguage(Section):
    """What phases 2 and 3 train: the language study's Transformer, small."""

    corpus: AlgebraText = key({}, "the text")
    heads: Count = key(2, "attention heads", "train")
    model: AlgebraModel = key({}, "the model")
    training: AlgebraTraining = key({}, "how it is trained")


class Components(Section):
    """Phase 2: one component of a Transformer at a time."""

    arms: _listed(Component) = key(list(Component.__args__), "components", "train report")
    seeds: Seeds = key([0, 1, 2], "seeds of each", "train report")


class Architectures(Section):
    """Phase 3: feed-forward layers of other linear maps."""

    arms: _listed(Architecture) = key(list(Architecture.__args__), "linear maps", "train report")
    seeds: Seeds = key([0, 1, 2], "seeds of each", "train report")


class AlgebraSpeech(Section):
    """Phase 3 on the corpus of this configuration."""

    arms: _listed(Architecture) = key(..., "linear maps", "train report")
    seeds: Seeds = key(..., "seeds of each", "train report")
    epochs: Count = key(..., "passes over the training data", "train report")


class AlgebraStudy(Section):
    """The algebra study, results/<run>/."""

    run: Name = key("algebra", "results/<run>/ holds what it finds")
    representation: Representation = key({}, "phase 1")
    language: AlgebraLanguage = key({}, "what phases 2 and 3 train")
    components: Components = key({}, "phase 2")
    architectures: Architectures = key({}, "phase 3")
    speech: AlgebraSpeech | None = key(None, "phase 3 on speech; null: not", "train report")
