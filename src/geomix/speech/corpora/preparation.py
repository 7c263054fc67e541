"""One split of a corpus, from its recordings to its manifest and summary; and the corpora that are generated."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix import files
from geomix.errors import UserError
from geomix.speech.corpora.sources import Source, write_sources
from geomix.speech.corpora.splits import read_split, reader_of
from geomix.speech.manifest import (
    SAMPLE_RATE,
    SAMPLES_WITHOUT_FRAME,
    Recording,
    Utterance,
    summary,
    write_manifest,
)
from geomix.speech.progress import Progress
from geomix.speech.threads import processors

SUMMARY = "split.json"


@dataclass(frozen=True)
class Audio:
    """A decoded recording: its samples at 16 kHz, their hash, and the file as it stood before."""

    samples: int
    hash: str
    source: Source


def generate_corpus(corpus: Mapping[str, Any], folder: str | os.PathLike) -> None:
    """Write the recordings of a generated corpus (kinds smoke and demo) to `folder`, whole or not at all.

    They lie there in LibriSpeech's layout, with settings.json, which says what they were made with and comes last.
    What was made with the same settings stays.
    """
    reader = reader_of(corpus)
    if not hasattr(reader, "generate"):
        raise UserError(
            f"corpus {corpus['name']}: kind {corpus['kind']} is not generated: give smoke or demo, or a path"
        )
    reader.generate(corpus, Path(folder))


def prepare_split(
    corpus: Mapping[str, Any], split: str, folder: str | os.PathLike, *, threads: int | None = None
) -> None:
    """Check one split of a corpus (train, dev or a test set) and write it to `folder`.

    `folder` gets manifest/<split>.tsv, sources.tsv (`write_sources`) and, last, split.json:

        corpus, kind, split
        utterances, speakers, words, characters, seconds, speed_histogram, hash    as `manifest.summary` gives them
        dropped            {"too_long": [id, ...], "too_short": [id, ...]}, empty for a test set
        original_seconds   before speed copies and dropping
        sources            {corpus split: {utterances, speakers, words, characters}}, before dropping and holding out

    Every recording is decoded in full. `train` holds one copy of each utterance per speed factor. Utterances of train
    and dev that are longer than `max_seconds` or shorter than `min_seconds` after perturbation, or without a feature
    frame, are dropped, logged by id and counted, as ESPnet's recipes do; test sets stay whole.

    Parameters
    ----------
    folder : data/<corpus>/<split>-<key>; audio below data/<corpus> is named relative to the manifest
    threads : recordings to decode at once; default: the processors this process may use

    Raises
    ------
    UserError
        For a bad recording or transcript, and for counts that differ from the published or expected ones.
    """
    folder, name = Path(folder), corpus["name"]
    factors = corpus["speed_factors"] if split == "train" else (1.0,)
    if len(set(factors)) != len(factors) or not factors:
        raise UserError(f"speed_factors {list(factors)}: give each factor once, [0.9, 1.0, 1.1] for instance")
    (folder / SUMMARY).unlink(missing_ok=True)
    reading = read_split(corpus, split)
    audio = _inspect(f"{name} {split}", reading.recordings, threads)
    originals = [Utterance(r.id, r.speaker, r.path, audio[r.path].samples, 1.0, r.text) for r in reading.recordings]
    utterances, dropped = (
        [u.at_speed(factor) for factor in factors for u in originals],
        {"too_long": [], "too_short": []},
    )
    if split in ("train", "dev"):
        utterances, dropped = _drop(corpus, split, utterances)
    else:
        _refuse_without_frame(utterances)
    write_manifest(folder / "manifest" / f"{split}.tsv", utterances, root=folder.absolute().parent)
    write_sources(folder, [*reading.listings, *(found.source for found in audio.values())])
    content = {
        "corpus": name,
        "kind": corpus["kind"],
        "split": split,
        **summary(utterances, {path: found.hash for path, found in audio.items()}),
        "dropped": dropped,
        "original_seconds": sum(u.samples for u in originals) / SAMPLE_RATE,
        "sources": reading.counts,
    }
    files.write_json(folder / SUMMARY, content)
    _report(name, split, content)


def _drop(
    corpus: Mapping[str, Any], split: str, utterances: Sequence[Utterance]
) -> tuple[list[Utterance], dict[str, list[str]]]:
    """What is within the bounds, and the ids of what is not."""
    most, least = corpus["max_seconds"], corpus["min_seconds"]
    long = sorted(u.id for u in utterances if u.seconds > most)
    short = sorted(u.id for u in utterances if u.seconds < least or u.samples <= SAMPLES_WITHOUT_FRAME)
    least = max(least, (SAMPLES_WITHOUT_FRAME + 1) / SAMPLE_RATE)
    for word, ids, limit in (("longer", long, most), ("shorter", short, least)):
        if ids:
            print(f"{split}: {len(ids)} utterances {word} than {limit:g} s dropped: {' '.join(ids)}", file=sys.stderr)
    gone = {*long, *short}
    kept = [u for u in utterances if u.id not in gone]
    if not kept:
        raise UserError(
            f"corpus {corpus['name']}: no utterance is left in {split}: look at hold_out_speakers, min_seconds and "
            "max_seconds in the config"
        )
    return kept, {"too_long": long, "too_short": short}


def _refuse_without_frame(utterances: Iterable[Utterance]) -> None:
    for u in utterances:
        if u.samples <= SAMPLES_WITHOUT_FRAME:
            raise UserError(
                f"{u.path}: utterance {u.id} has {u.samples} samples, too few for one feature frame: give at least "
                f"{SAMPLES_WITHOUT_FRAME + 1}, or take it out of the test set"
            )


def _report(name: str, split: str, content: Mapping[str, Any]) -> None:
    copies = ", ".join(f"{n} at speed {factor}" for factor, n in content["speed_histogram"].items())
    original = content["original_seconds"]
    print(
        f"{name}: {split} has {content['utterances']} utterances ({copies}), {content['seconds']:.0f} s in all, "
        f"{content['seconds'] / original:.2f} x the {original:.0f} s of the corpus",
        file=sys.stderr,
    )


def _inspect(what: str, recordings: Iterable[Recording], threads: int | None) -> dict[str, Audio]:
    """Every recording's audio by path. Decoding releases the interpreter lock: threads do."""
    from geomix.speech.audio import inspect_audio

    def inspect(path: str) -> Audio:
        source = Source.of(path) if os.path.exists(path) else Source(path, 0, 0)  # its absence is told below
        return Audio(*inspect_audio(path), source)

    paths = sorted({r.path for r in recordings})
    progress = Progress(f"checking {what}", len(paths))
    found = {}
    with ThreadPoolExecutor(threads or processors()) as pool:
        try:
            for path, audio in zip(paths, pool.map(inspect, paths), strict=True):
                found[path] = audio
                progress.add(1, audio.samples / SAMPLE_RATE)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # a bad file is told at once, not after the last one
            raise
    progress.close()
    return found
