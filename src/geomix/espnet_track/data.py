"""ESPnet's data folder from our manifests: wav.scp, text, utt2spk and shape files; audio copies for other speeds.

Both tracks see the same utterances in the same order: ESPnet sorts by the first number of `speech_shape`, which is the manifest's
samples, and keeps the order of the file, which is that of the ids, among equals.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomix.errors import UserError
from geomix.files import read_object, sha256, write_text
from geomix.speech.manifest import SAMPLE_RATE, Utterance, read_manifest
from geomix.speech.tokenizer import Tokenizer

if TYPE_CHECKING:
    from geomix.speech.batching import Example


@dataclass(frozen=True)
class EspnetData:
    """What a training of this track reads: summaries (split.json), Kaldi folders (see `write_data`), sums of features, tokenizer.

    stats : feats_stats.npz of ESPnet's collect-stats; tokenizer : its folder
    """

    train_summary: Path
    dev_summary: Path
    train: Path
    dev: Path
    stats: Path
    tokenizer: Path

    @classmethod
    def of(cls, files: Any, stats: str | os.PathLike | None = None) -> EspnetData:
        """From an object with the workflow's inputs train_summary, dev_summary, train_scp, dev_scp, stats and tokens as attributes.

        stats : where collect-stats is to leave the sums, for the job that makes them
        """
        return cls(
            train_summary=Path(files.train_summary),
            dev_summary=Path(files.dev_summary),
            train=Path(files.train_scp).parent,
            dev=Path(files.dev_scp).parent,
            stats=Path(files.stats if stats is None else stats),
            tokenizer=Path(files.tokens).parent,
        )

    @functools.cached_property
    def hashes(self) -> dict[str, str]:
        """Hashes of the splits and of the tokenizer: with the settings, all that decides the weights."""
        return {
            "train": read_object(self.train_summary, "hash")["hash"],
            "dev": read_object(self.dev_summary, "hash")["hash"],
            "tokenizer": sha256(self.tokenizer / "tokenizer.model"),
        }


def write_speed_copies(manifest: str | os.PathLike, factor: float, folder: str | os.PathLike, threads: int = 1) -> None:
    """Write the training utterances of one speed as `<folder>/<id>.flac`, 16 bits, which is what ESPnet's recipes read.

    The resampling is the one of our features; only the rounding to 16 bits differs. All files or, after an error, none that
    the workflow keeps.
    """
    import soundfile
    import torch

    from geomix.speech.audio import perturb_speed, read_audio
    from geomix.speech.progress import Progress

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    copies = [u for u in read_manifest(manifest) if u.speed == factor]
    show = Progress(f"audio at speed {factor}", len(copies))

    def write(utterance: Utterance) -> Utterance:
        torch.set_num_threads(1)
        waveform = perturb_speed(torch.from_numpy(read_audio(utterance.path)), factor)
        soundfile.write(speed_copy(folder, utterance), waveform.clamp(-1, 1).numpy(), SAMPLE_RATE, subtype="PCM_16")
        return utterance

    with ThreadPoolExecutor(threads) as pool:
        for utterance in pool.map(write, copies):
            show.add(1, utterance.seconds)
    show.close()


def speed_copy(folder: str | os.PathLike, utterance: Utterance) -> Path:
    """File of an utterance's copy at its speed."""
    return Path(folder) / f"{utterance.id}.flac"


def write_data(
    manifest: str | os.PathLike,
    tokenizer: Tokenizer,
    folder: str | os.PathLike,
    copies: dict[float, str | os.PathLike] | None = None,
) -> None:
    """Write the Kaldi folder of one split: wav.scp, text, utt2spk, speech_shape (samples) and text_shape (tokens, units).

    Parameters
    ----------
    copies : speed factor -> folder of `write_speed_copies`, for every factor but 1 in the manifest

    The second number of text_shape is the number of output units, as asr.sh appends it: batches of type numel count both.
    """
    utterances, copies = read_manifest(manifest), copies or {}

    def audio(utterance: Utterance) -> str:
        if utterance.speed == 1.0:
            return utterance.path
        if utterance.speed not in copies:
            raise UserError(
                f"{manifest}: {utterance.id} has speed {utterance.speed}, and no audio copies were made of it"
            )
        return str(speed_copy(copies[utterance.speed], utterance).absolute())

    lengths = {text: len(tokenizer.encode(text)) for text in {u.text for u in utterances}}
    columns: dict[str, Callable[[Utterance], str]] = {
        "wav.scp": audio,
        "text": lambda u: u.text,
        "utt2spk": lambda u: u.speaker,
        "speech_shape": lambda u: str(u.samples),
        "text_shape": lambda u: f"{lengths[u.text]},{tokenizer.size}",
    }
    for name, column in columns.items():
        write_text(Path(folder) / name, "".join(f"{u.id} {column(u)}\n" for u in utterances))


def read_scp(path: str | os.PathLike) -> dict[str, str]:
    """A Kaldi file of two columns, split at the first space."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return {key: value for key, _, value in (line.partition(" ") for line in lines)}


def write_training_shapes(data: EspnetData, subsampling: int, out: str | os.PathLike) -> tuple[list[Path], list[str]]:
    """Write the shape files of the training utterances that CTC can align, and return them with the ids left out.

    The own track leaves the same ones out (`batching.split_alignable`); ESPnet reads what its shape files name.
    """
    from geomix.models.subsampling import subsampled_length
    from geomix.speech.batching import Example, split_alignable
    from geomix.speech.features import frames_of

    tokenizer = Tokenizer.load(data.tokenizer)
    texts = read_scp(data.train / "text")
    shapes = {name: read_scp(data.train / name) for name in ("speech_shape", "text_shape")}
    encoded = {text: tuple(tokenizer.encode(text)) for text in set(texts.values())}
    samples = {i: int(n) for i, n in shapes["speech_shape"].items()}
    examples = [Example(i, samples[i], frames_of(samples[i]), encoded[text]) for i, text in texts.items()]
    kept, dropped = split_alignable(examples, functools.cache(lambda frames: subsampled_length(frames, subsampling)))
    files = []
    for name, shape in shapes.items():
        files.append(Path(out) / name)
        write_text(files[-1], "".join(f"{example.id} {shape[example.id]}\n" for example in kept))
    return files, sorted(example.id for example in dropped)


def read_shapes(shapes: Sequence[Path]) -> tuple[list[Example], int]:
    """Utterances of speech_shape and text_shape, as many zeros for tokens as they have, and the number of output units.

    No utterance is a `UserError`.
    """
    from geomix.speech.batching import Example
    from geomix.speech.features import frames_of

    speech, text = (read_scp(path) for path in shapes)
    if not text:
        raise UserError(f"{shapes[1]}: no training utterance is long enough for its transcript: check the manifest")
    tokens, units = {}, 0
    for i, shape in text.items():
        tokens[i], units = map(int, shape.split(","))
    return [Example(i, int(n), frames_of(int(n)), (0,) * tokens[i]) for i, n in speech.items()], units


def write_sorted_text(path: str | os.PathLike, texts: dict[str, str], ids: Iterable[str] | Sequence[str]) -> None:
    """Kaldi text of all `ids`, sorted; one without a hypothesis is a `UserError` (never skipped)."""
    from geomix.speech.decoding import write_hypotheses

    ids = list(ids)
    if missing := [i for i in ids if i not in texts]:
        raise UserError(
            f"{path}: ESPnet gave no hypothesis for {len(missing)} utterances (first: {missing[0]}): decode again"
        )
    write_hypotheses(path, {i: texts[i] for i in ids})
