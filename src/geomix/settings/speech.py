"""Sections of the speech study: corpus, features, tokenizer, model, training, augmentation, decoding."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from geomix.settings.base import (
    Count,
    Name,
    Names,
    Normaliser,
    NotNegative,
    Positive,
    Rate,
    Section,
    Seed,
    Unique,
    key,
    override,
)


def _with_original(factors: list[float]) -> list[float]:
    if 1.0 not in factors:
        raise ValueError("lacks 1.0, the recordings as they are: add it")
    return factors


def _whole(value: object) -> object:
    # a choice of numbers would take 4.0 for 4
    if isinstance(value, float):
        raise ValueError(f"is not a whole number: write {value:.0f}")
    return value


def _odd(frames: int) -> int:
    if frames % 2 == 0:
        raise ValueError("is even: a convolution that keeps the length needs an odd number of frames")
    return frames


class HoldOut(Section):
    """Speakers taken out of the training splits."""

    hold_out_speakers: Names = key(..., "speakers that are taken out of `train` and make up this set", "prepare")


class Expected(Section):
    """Counts of a split of the corpus, before anything is dropped or held out."""

    utterances: int | None = override("utterances", "prepare")
    speakers: int | None = override("speakers", "prepare")
    words: int | None = override("words of all transcripts", "prepare")
    characters: int | None = override("characters of all transcripts, spaces included", "prepare")


class Corpus(Section):
    """Where the recordings come from and which of them train, select epochs and test."""

    name: Name = key(..., "prepared data lie in data/<name>/, shared by all runs on this corpus", "prepare report")
    kind: Literal["librispeech", "folder", "kaldi", "manifest", "smoke", "demo"] = key(
        ...,
        "form of the corpus: LibriSpeech, its folder form, Kaldi, a TSV manifest; smoke and demo are generated",
        "prepare report",
    )
    path: str | None = key(None, "folder of the recordings ($GEOMIX_DATA is expanded)", "prepare")
    download: bool = key(
        False, "librispeech: fetch the archives into `path` first, checked against published checksums"
    )
    audio_root: str | None = key(None, "kaldi: folder from which wav.scp's relative paths start", "prepare")
    allow_pipes: bool = key(
        False,
        "kaldi: run the commands of a wav.scp whose lines end in a pipe, in `audio_root`",
        "prepare",
        before=False,
    )
    resample: bool = key(
        False, "bring other sample rates to 16 kHz and several channels to their mean (torchaudio)", "prepare report",
        before=False,
    )  # fmt: skip
    normaliser: Normaliser = key(
        "none",
        "done to all transcripts and, before they are scored, to hypotheses: lower case; lower case without punctuation; Whisper's",
        "prepare score report",
        before="none",
    )
    train: Names = key(..., "splits of the corpus that train", "prepare report")
    dev: Names | HoldOut = key(..., "splits whose union selects the epochs, or held-out speakers", "prepare report")
    test: Names | Annotated[dict[Name, Names | HoldOut], Field(min_length=1)] = key(
        ..., "sets that are decoded and scored once, at the end; or NAME: splits, or NAME: held-out speakers",
        "prepare compare report",
    )  # fmt: skip
    speed_factors: Annotated[
        list[Annotated[float, Field(gt=0.2, lt=5)]], Field(min_length=1), Unique, AfterValidator(_with_original)
    ] = key([0.9, 1.0, 1.1], "each training utterance is used at each of these speeds", "prepare report")
    min_seconds: NotNegative = key(
        0.1, "shorter utterances of train and dev (after the speed change) are dropped and listed", "prepare report"
    )
    max_seconds: Positive = key(30.0, "longer utterances of train and dev are dropped and listed", "prepare report")
    expected: dict[str, Expected] = key(
        {}, "counts by split that must be found; they replace the published ones", "prepare"
    )
    minutes: Positive = key(52.0, "demo: speech to train on, in minutes", "prepare report")
    dev_minutes: Positive = key(3.0, "demo: speech that selects the epochs, in minutes", "prepare report")
    test_minutes: Positive = key(8.0, "demo: speech of the test set, in minutes", "prepare report")
    snr_db: Annotated[list[float], Field(min_length=2, max_length=2)] = key(
        [20.0, 40.0], "demo: range of the signal-to-noise ratios in dB", "prepare report"
    )
    speakers: Count = key(8, "smoke: speakers to train on", "prepare report")
    utterances: Count = key(6, "smoke: utterances of each", "prepare report")
    seed: Seed = key(0, "smoke, demo: of what is generated", "prepare report")


class Features(Section):
    """Log-mel frames, as ESPnet's frontend computes them."""

    mels: Annotated[Literal[80], BeforeValidator(_whole)] = key(
        80, "log-mel bands of 25 ms windows every 10 ms", "features train report"
    )
    dtype: Literal["float32", "float16"] = key(
        "float32", "number format on disk; float16 halves the 35 GB of the full study", "features train report"
    )


class Tokenizer(Section):
    """One SentencePiece model for all arms, seeds and tracks."""

    kind: Literal["unigram", "bpe", "word", "char"] = key("unigram", "kind of unit", "tokenizer report")
    size: Annotated[int, Field(ge=4)] | None = key(
        5000, "units, <blank>, <unk> and <sos/eos> included; null: as many as the text has (word, char)",
        "tokenizer report",
    )  # fmt: skip


class IntermediateCTC(Section):
    """CTC losses inside the encoder (arXiv 2102.03216)."""

    blocks: Annotated[list[Count], Field(min_length=1)] = key(..., "blocks after which there is one", "train report")
    weight: Annotated[float, Field(gt=0, lt=1)] = key(..., "their share of the loss", "train report")
    self_conditioning: bool = key(
        ..., "feed the intermediate posteriors back into the stream (arXiv 2104.02724)", "train report"
    )


class Model(Section):
    """The Conformer that all arms share, laid out as ESPnet's, with a CTC head."""

    blocks: Count = key(15, "Conformer blocks", "train report")
    width: Count = key(256, "model width", "train report")
    ff_dim: Count = key(1024, "inner width of the feed-forward maps", "train report")
    kernel: Annotated[Count, AfterValidator(_odd)] = key(31, "frames of the depthwise convolution; odd", "train report")
    subsampling: Annotated[Literal[4, 8], BeforeValidator(_whole)] = key(
        4, "frames joined by the strided convolutions in front", "train report"
    )
    dropout: Rate = key(0.1, "probability of dropout", "train report")
    positional_dropout: Rate = key(0.1, "of the embedded frames and positions", "train report")
    attention_dropout: Rate = key(0.1, "of the attention weights", "train report")
    batch_norm: Literal["espnet", "masked"] = key(
        "espnet", "statistics over padded frames too, as the recipe has them, or over real frames alone", "train report"
    )
    intermediate_ctc: IntermediateCTC | None = key(None, "CTC losses after inner blocks; null: none", "train report")


class TrainerKeys(Section):
    """What the trainer reads, whatever it trains; the defaults are ESPnet's recipe for LibriSpeech-100 with CTC."""

    epochs: Count = key(70, "passes over the training data", "train")
    max_updates: Count | None = key(None, "stop after so many optimiser steps; null: after the epochs", "train")
    accumulation: Count = key(4, "batches of an optimiser step", "train")
    optimizer: Literal["adam", "adamw"] = key("adam", "Adam, or AdamW, whose weight decay is decoupled", "train")
    learning_rate: Positive = key(0.002, "peak of the learning rate", "train")
    weight_decay: NotNegative = key(1e-6, "weight decay of all parameters", "train")
    learning_rate_by_grade: list[NotNegative] = key(
        [],
        "factors on the learning rate of what a multivector layer holds in grade 0, 1, ...; grades beyond the list and all else: 1",
        "train",
        before=[],
    )
    schedule: Literal["warmup", "cosine_per_epoch", "constant"] = key(
        "warmup", "linear rise, then one over the square root; or towards 0 over the epochs; or constant", "train"
    )
    warmup: Count = key(15000, "optimiser steps of the rise", "train")
    clip: NotNegative = key(5.0, "largest gradient norm; 0: no limit", "train")
    precision: Literal["auto", "fp32", "bf16"] = key("auto", "auto: bf16 autocast on a GPU, fp32 elsewhere", "train")
    detect_after: Count | None = key(
        4000, "optimiser steps after which a training that learns nothing is stopped; null: never"
    )
    save_minutes: Positive = key(10.0, "time between two saves of the state, beside those at each epoch's end")
    log_every: Count = key(50, "optimiser steps between two lines of progress")
    tensorboard: bool = key(False, "event files for TensorBoard in state/<hash>/tensorboard/")
    device: Literal["auto", "cuda", "mps", "cpu"] = key("auto", "auto: CUDA, else Apple's MPS, else the CPU")
    threads: Count = key(2, "CPU threads of a training")


class Training(TrainerKeys):
    """How the arms of the speech study are trained."""

    clip: Positive = key(5.0, "largest gradient norm", "train")
    batch_bins: Count = key(16_000_000, "padded samples, plus padded tokens times units, of a batch", "train")
    keep_best: Count = key(10, "epochs whose weights are averaged", "average")
    best_by: Literal["dev_cer", "dev_wer", "dev_loss"] = key("dev_cer", "measure that ranks the epochs", "average")


class Augmentation(Section):
    """SpecAugment as ESPnet applies it."""

    time_warp: Annotated[int, Field(ge=0)] = key(5, "window of the time warp in frames; 0: none", "train")
    frequency_masks: Annotated[int, Field(ge=0)] = key(2, "masks of bands", "train")
    frequency_width: Annotated[int, Field(ge=0)] = key(27, "bands of a mask, at most (exclusive)", "train")
    time_masks: Annotated[int, Field(ge=0)] = key(5, "masks of frames", "train")
    time_ratio: Annotated[float, Field(ge=0, le=1)] = key(0.05, "share of an utterance in a mask, at most", "train")


class Decoding(Section):
    """Greedy CTC decoding."""

    batch_seconds: Positive = key(240.0, "audio of a batch in seconds")
