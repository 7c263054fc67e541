"""Sections that say what is asked: arms, tracks and seeds of a study, its contrasts, its gate, published rows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from geomix.settings.base import (
    Count,
    Name,
    Names,
    Normaliser,
    NotNegative,
    Positive,
    Section,
    Seed,
    Seeds,
    Unique,
    key,
    override,
)

Track = Literal["own", "espnet"]


class Study(Section):
    """What is run."""

    arms: Names = key(..., "arms that are trained and compared", "train compare report")
    tracks: Annotated[list[Track], Field(min_length=1), Unique] = key(
        ["own"], "own: geomix's trainer; espnet: ESPnet 202611, the same arms, data and recipe", "train compare report"
    )
    seeds: Seeds = key([0, 1, 2], "seeds of each arm", "train compare report")
    track_seeds: dict[Track, Seeds] = key({}, "other seeds for a track", "train compare report")


class Expectation(Section):
    """A hypothesis in words, and the predicate over the arms' rates by which it is judged."""

    text: str = key(..., "what is expected, in words", "report")
    holds: str | None = key(
        None,
        "rates of arms compared: `a - b > 0`, `equal(a, b)` or `(a - b) / (c - b) > 0.5`; null: not judged",
        "compare report",
    )


def _listed(value: Any) -> Any:
    """A sentence alone as a list of one; null as none."""
    return [] if value is None else [{"text": value}] if isinstance(value, str) else value


Expectations = Annotated[list[Expectation], BeforeValidator(_listed)]


class Comparison(Section):
    """Which differences between arms were planned, and how their intervals are drawn."""

    planned: list[Annotated[list[Name], Field(min_length=2, max_length=2)]] = key(
        [], "contrasts [a, b] under Holm's correction; every other pair is marked exploratory", "compare report"
    )
    resamples: Annotated[int, Field(ge=100)] = key(10000, "resamples of the paired bootstrap", "compare report")
    seed: Seed = key(0, "of the bootstrap", "compare report")
    margin: Positive | None = key(
        None, "difference in points of WER below which arms count as equal, stated before the run; null: none",
        "compare report",
    )  # fmt: skip


class Target(Section):
    """A word error rate that the baseline must reach."""

    set: Name = key(..., "evaluation set", "gate report")
    wer: NotNegative = key(..., "word error rate in %; better always passes", "gate report")
    tolerance: NotNegative = key(0.0, "how much worse, in points, passes too", "gate report")
    source: str | None = key(None, "where the number was published; null: a target of our own", "gate report")


Targets = Annotated[list[Target], Field(min_length=1)]


class Anchor(Section):
    """An arm that is measured against published numbers."""

    track: Track = key("own", "track on which it is measured", "train gate report")
    arm: Name = key("attention", "the arm that is measured", "train gate report")
    seeds: Seeds = key([0], "its seeds; their mean is measured", "train gate report")
    targets: Targets = key(..., "what it must reach", "gate report")


class Gate(Anchor):
    """Gated arms wait until the baseline has reached its targets."""

    mode: Literal["enforce", "record"] = key(
        "enforce", "record: note a miss, go on, and mark each table", "gate report"
    )
    fallback: Anchor | None = key(
        None, "another anchor, trained only when the first one misses; null: none", "train gate report"
    )


class Reference(Section):
    """A published row, printed for scale."""

    system: str = key(..., "name of the system", "report")
    parameters: Count | None = override("its size, as published", "report")
    source: str = key(..., "where it was published", "report")
    wer: dict[str, NotNegative] = key(..., "word error rate in % by set", "report")


class GraniteOptions(Section):
    """Options of decoding with a Granite checkpoint."""

    dtype: Literal["float32", "float64", "bfloat16", "float16"] | None = override("number format", "decode")
    batch: Count | None = override("utterances of a batch", "decode")
    beams: Count | None = override("beams; 1: greedy", "decode")
    max_new_tokens: Count | None = override("longest answer in tokens", "decode")
    window_seconds: Annotated[float, Field(gt=0)] | None = override("longest piece of audio in seconds", "decode")
    length_penalty: float | None = override("exponent of the length in beam search", "decode")
    alphabet: str | None = override("file with the alphabet of a CTC head that was published without one", "decode")
    prompt: str | None = override("what is asked of the model", "decode")
    system: str | None = override("system prompt", "decode")


class GraniteCheckpoint(Section):
    """A folder with a published checkpoint."""

    path: str = key(..., "the folder", "decode")
    heads: Annotated[list[Literal["decode", "ctc"]], Field(min_length=1), Unique] = key(
        ..., "decode: the whole model; ctc: the encoder's own head", "decode report"
    )
    decode: GraniteOptions = key({}, "options of this checkpoint's decoder", "decode")
    ctc: GraniteOptions = key({}, "options of this checkpoint's CTC head", "decode")


class Granite(Section):
    """Published Granite Speech checkpoints as reference rows."""

    checkpoints: Annotated[dict[Name, GraniteCheckpoint], Field(min_length=1)] = key(
        ..., "row name: checkpoint", "decode report"
    )
    decode: GraniteOptions = key({}, "options of the whole model", "decode")
    ctc: GraniteOptions = key({}, "options of the CTC head", "decode")
    normaliser: Normaliser = key("whisper-english", "text normaliser of hypotheses and references", "score")
    device: Literal["auto", "cuda", "mps", "cpu"] = key("auto", "where to compute")
    threads: Count = key(8, "CPU threads")
