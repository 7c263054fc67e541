"""Sections of the algebra study: the four phases of [Parslow2026], with their controls."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geomix.settings.arms import LanguageArm, SpeechArm
from geomix.settings.base import Count, Name, Names, NotNegative, Positive, Section, Seeds, Unique, key
from geomix.settings.language import LanguageComparison, LanguageModel, LanguageStudy, LanguageTraining, Text
from geomix.settings.study import Comparison

Task = Literal[
    "fixed_rotation", "rotors_spin3", "rotors_spin4", "versors_pin3", "intersection", "orientation", "analogy", "plane",
    "null_teacher", "null_product",
]  # fmt: skip
RepresentationArm = Literal[
    "clifford", "shuffled", "gauge", "all_plus", "other_signature", "mixed_signature", "dense", "wide_dense", "low_rank",
    "complex", "quaternion", "grouped",
]  # fmt: skip

# tasks whose models phase 4 looks into, and arms whose weights are kept for it
INSPECTED_TASKS = ("rotors_spin3", "analogy")
INSPECTED_ARMS = ("clifford", "shuffled", "dense")


TruncationTask = Literal["turn", "chain", "rotors", "null"]
KeptGrades = Literal["all"] | Annotated[int, Field(ge=1, le=5)]


AdoptedArm = Literal["continued", "widened", "clifford", "shuffled", "staged", "slow", "scratch"]
Activation = Literal["norm", "component", "gate", "none"]


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


class Truncation(Section):
    """Truncation: the same problems with grades kept up to a number."""

    tasks: _listed(TruncationTask) = key(list(TruncationTask.__args__), "problems", "train report")
    dimensions: _listed(Annotated[int, Field(ge=4, le=6)]) = key([4, 5, 6], "dimensions of the vectors", "train report")
    grades: _listed(KeptGrades) = key([1, 2, 3, "all"], "highest grades that are kept", "train report")
    tables: Count = key(8, "tables of random signs", "train report")
    gauge_tables: Count = key(1, "the truncated table under other names, which must tie", "train report")
    seeds: Seeds = key([10, 11, 12], "of data and initial weights", "train report")
    steps: Count = key(400, "full-batch steps of Adam", "train report")
    learning_rate: Positive = key(0.01, "of Adam", "train report")
    parameters: Count = key(900, "numbers of each arm, to which its channels are chosen", "train report")


class Layers(Section):
    """Multivector layers inserted into trained scalar models, and their nonlinearities."""

    adopted: _listed(AdoptedArm) = key(list(AdoptedArm.__args__), "what is inserted", "train report")
    updates: Count = key(150, "updates after the insertion", "train report")
    noise: NotNegative = key(0.001, "standard deviation of what is not grade 0 at the insertion", "train report")
    activations: _listed(Activation) = key(list(Activation.__args__), "nonlinearities compared", "train report")
    seeds: Seeds = key([10, 11, 12], "of the nonlinearities' data, signs and weights", "train report")
    steps: Count = key(500, "full-batch steps of Adam of the nonlinearities", "train report")
    learning_rate: Positive = key(0.003, "of both", "train report")


class AlgebraText(Text):
    """The text of phases 2 and 3."""

    name: Name = key("python-docs-1000", "prepared tokens lie in data/language/<name>-<key>/", "prepare report")
    kind: Literal["wikitext", "builtin"] = key(
        "builtin", "the documentation topics that every CPython carries, or WikiText-2", "prepare report"
    )
    vocabulary: str | Annotated[int, Field(ge=100)] | None = key(
        1000,
        "the number of pieces to train, or a WordPiece file; null: bert-base-uncased, downloaded",
        "prepare report",
    )


class AlgebraModel(LanguageModel):
    """The small Transformer of phases 2 and 3."""

    positions: Count = key(64, "tokens in a block", "train report")
    blocks: Count = key(2, "layers", "train report")
    width: Count = key(64, "model width", "train report")
    ff_dim: Count = key(128, "inner width of the feed-forward maps", "train report")
    init_std: Positive | None = key(0.05, "standard deviation of all weights; null: torch's own", "train report")


class AlgebraTraining(LanguageTraining):
    """Training of phases 2 and 3: AdamW, a cosine over the epochs."""

    epochs: Count = key(2, "passes over the text", "train report")
    batch: Count = key(16, "blocks of a batch", "train report")
    learning_rate: Positive = key(0.003, "peak of the learning rate", "train report")
    warmup: Count = key(20, "optimiser steps of the rise", "train report")
    clip: NotNegative = key(1.0, "largest gradient norm; 0: no limit", "train report")
    detect_after: Count | None = key(
        None, "optimiser steps after which a training no better than the unigram table is stopped; null: never"
    )
    log_every: Count = key(200, "optimiser steps between two lines of progress")
    device: Literal["auto", "cuda", "mps", "cpu"] = key(
        "cpu", "where it is trained: two blocks of width 64 leave a GPU idle"
    )
    threads: Count = key(1, "CPU threads of a training")


class AlgebraLanguage(Section):
    """What phases 2 and 3 train: the language study's Transformer, small."""

    corpus: AlgebraText = key({}, "the text")
    model: AlgebraModel = key({}, "the model")
    training: AlgebraTraining = key({}, "how it is trained")


class ComponentsStudy(LanguageStudy):
    """What phase 2 runs."""

    arms: Names = key(
        [
            "scalar", "q", "q_shuffled", "q_low_rank", "k", "k_shuffled", "k_low_rank", "v", "v_shuffled",
            "v_low_rank", "qkv", "qkv_shuffled", "qkv_gauge", "qkv_even", "qkv_even_shuffled", "qkv_blades", "qkv_blades_shuffled",
            "qkv_low_rank", "qk_wide", "qk_wide_shuffled",
            "qk_wide_low_rank", "v_wide", "v_wide_shuffled", "v_wide_low_rank", "qkv_wide", "qkv_wide_shuffled",
            "qkv_wide_gauge", "qkv_wide_low_rank", "qk_wide_21", "qk_wide_21_shuffled", "qk_wide_13",
            "qk_wide_13_shuffled", "qkv_slow", "qkv_fast", "positions", "rope",
        ],
        "arms that are trained and compared", "train compare report",
    )  # fmt: skip
    baseline: Name | None = key(
        "scalar", "arm to whose size the others are matched within 5 %; null: sizes are not compared", "compare report"
    )
    seeds: Seeds = key([0, 1, 2, 3, 4], "seeds of each arm", "train compare report")


class Components(Section):
    """Phase 2: one component of a Transformer at a time, a language study."""

    arms: dict[Name, LanguageArm] = key({}, "arms by name, as those of `language.arms`", "train report")
    study: ComponentsStudy = key({}, "what is run")
    comparison: LanguageComparison = key({}, "which differences were planned")


class ArchitecturesStudy(LanguageStudy):
    """What phase 3 runs."""

    arms: Names = key(
        ["ordinary", "wide_scalar", "low_rank", "complex", "quaternion", "grouped", "clifford", "shuffled",
         "clifford_two_sided", "shuffled_two_sided", "scalar_flops"],
        "arms that are trained and compared", "train compare report",
    )  # fmt: skip
    baseline: Name | None = key(
        "wide_scalar",
        "arm to whose size the others are matched within 5 %; null: sizes are not compared",
        "compare report",
    )


class Architectures(Section):
    """Phase 3: feed-forward layers of other linear maps, a language study."""

    arms: dict[Name, LanguageArm] = key({}, "arms by name, as those of `language.arms`", "train report")
    study: ArchitecturesStudy = key({}, "what is run")
    comparison: LanguageComparison = key({}, "which differences were planned")


class AlgebraSpeechStudy(Section):
    """What phase 3 runs on speech."""

    arms: Names = key(
        ["wide_scalar", "clifford", "shuffled", "rotors"],
        "arms that are trained and compared; `wide_scalar` is the baseline",
        "train compare report",
    )
    seeds: Seeds = key([0, 1, 2], "seeds of each arm", "train compare report")


class AlgebraSpeechTraining(Section):
    """What phase 3 on speech trains otherwise than the configuration's `training`."""

    epochs: Count = key(5, "passes over the training data", "train")
    keep_best: Count = key(1, "epochs whose weights are averaged", "average")
    detect_after: Count | None = key(
        None, "optimiser steps after which a training that learns nothing is stopped; null: never"
    )


class AlgebraSpeech(Section):
    """Phase 3 on the corpus, with the model and the recipe of this configuration: a speech study."""

    arms: dict[Name, SpeechArm] = key({}, "arms by name, as those of `arms`", "train report")
    study: AlgebraSpeechStudy | None = key(None, "what is run; null: nothing on speech", "train average compare report")
    comparison: Comparison = key({}, "which differences were planned")
    training: AlgebraSpeechTraining = key({}, "what is trained otherwise")


class AlgebraStudy(Section):
    """The algebra study, results/<run>/."""

    run: Name = key("algebra", "results/<run>/ holds what it finds", "report")
    representation: Representation = key({}, "phase 1")
    truncation: Truncation = key({}, "how many grades a problem needs")
    layers: Layers = key({}, "multivector layers in trained scalar models, and nonlinearities")
    language: AlgebraLanguage = key({}, "what phases 2 and 3 train")
    components: Components = key({}, "phase 2")
    architectures: Architectures = key({}, "phase 3")
    speech: AlgebraSpeech = key({}, "phase 3 on speech")
