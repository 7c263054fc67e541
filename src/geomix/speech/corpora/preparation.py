"""One split of a corpus, from its recordings to its manifest and summary; and the corpora that are generated."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomix import files
from geomix.errors import UserError
from geomix.settings.stages import keeps_audio
from geomix.speech.corpora.faults import Faults
from geomix.speech.corpora.sources import AUDIO, write_sources
from geomix.speech.corpora.splits import Reading, read_split, reader_of
from geomix.speech.manifest import (
    SAMPLE_RATE,
    SAMPLES_WITHOUT_FRAME,
    Utterance,
    summary,
    write_manifest,
)

if TYPE_CHECKING:
    from geomix.speech.corpora.inspection import Audio

SUMMARY = "split.json"


@dataclass(frozen=True)
class Examined:
    """A split whose recordings were decoded and whose utterances were checked.

    originals : its utterances as recorded; utterances : those that are used, with their copies at other speeds
    dropped : {"too_long": [id, ...], "too_short": [id, ...]}
    audio : by utterance id
    """

    reading: Reading
    originals: list[Utterance]
    utterances: list[Utterance]
    dropped: dict[str, list[str]]
    audio: dict[str, Audio]


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
        resampled          {"with": ..., "utterances": {"44100 Hz, 2 channels": n}}, where any recording was converted
        normaliser         its name, where there is one

    Every recording is decoded in full; what is cut out of a longer one, converted or written by a command goes to
    audio/<id>.flac (16 bits). `train` holds one copy of each utterance per speed factor. Utterances of train
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
    folder, name, faults = Path(folder), corpus["name"], Faults()
    (folder / SUMMARY).unlink(missing_ok=True)
    audio_folder = folder / AUDIO
    shutil.rmtree(audio_folder, ignore_errors=True)
    if keeps_audio(corpus):
        audio_folder.mkdir(parents=True)
    found = examine_split(corpus, split, faults, folder=audio_folder, threads=threads)
    faults.print_warnings()
    write_manifest(folder / "manifest" / f"{split}.tsv", found.utterances, root=folder.absolute().parent)
    sources = [audio.source for audio in found.audio.values() if audio.source]
    write_sources(folder, [*found.reading.listings, *sources])
    content = {
        "corpus": name,
        "kind": corpus["kind"],
        "split": split,
        **summary(found.utterances, {audio.path: audio.hash for audio in found.audio.values()}),
        "dropped": found.dropped,
        "original_seconds": sum(u.samples for u in found.originals) / SAMPLE_RATE,
        "sources": found.reading.counts,
        **_changes(corpus, found.audio),
    }
    files.write_json(folder / SUMMARY, content)
    _report(name, split, content)


def examine_split(
    corpus: Mapping[str, Any],
    split: str,
    faults: Faults,
    *,
    folder: Path | None = None,
    threads: int | None = None,
) -> Examined:
    """Read, decode and check one split; what has to be cut or converted is written to `folder`, if there is one."""
    from geomix.speech.corpora.inspection import (
        Handling,
        inspect,
    )  # decoding needs numpy, what only reads summaries does not

    factors = corpus["speed_factors"] if split == "train" else (1.0,)
    if len(set(factors)) != len(factors) or not factors:
        raise UserError(f"speed_factors {list(factors)}: give each factor once, [0.9, 1.0, 1.1] for instance")
    reading = read_split(corpus, split, faults)
    handling = Handling(bool(corpus.get("resample")), folder)
    audio = inspect(f"{corpus['name']} {split}", reading.recordings, handling, faults, threads)
    originals = [
        Utterance(r.id, r.speaker, audio[r.id].path, audio[r.id].samples, 1.0, r.text)
        for r in reading.recordings
        if r.id in audio
    ]
    utterances = [u.at_speed(factor) for factor in factors for u in originals]
    dropped: dict[str, list[str]] = {"too_long": [], "too_short": []}
    if split in ("train", "dev"):
        utterances, dropped = _drop(corpus, split, utterances, faults)
    else:
        _refuse_without_frame(utterances, faults)
    return Examined(reading, originals, utterances, dropped, audio)


def _changes(corpus: Mapping[str, Any], audio: Mapping[str, Audio]) -> dict[str, Any]:
    """What a summary says of recordings that were converted and of transcripts that were normalised; nothing where none was."""
    from geomix.speech.audio import resampler

    changes: dict[str, Any] = {}
    if forms := Counter(found.form for found in audio.values() if found.form):
        changes["resampled"] = {"with": resampler(), "utterances": dict(sorted(forms.items()))}
    if corpus.get("normaliser", "none") != "none":
        changes["normaliser"] = corpus["normaliser"]
    return changes


def _drop(
    corpus: Mapping[str, Any], split: str, utterances: Sequence[Utterance], faults: Faults
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
    if not kept and not faults.found:
        faults.add(
            "empty split",
            f"corpus {corpus['name']}: no utterance is left in {split}: look at hold_out_speakers, min_seconds and "
            "max_seconds in the config",
        )
    return kept, {"too_long": long, "too_short": short}


def _refuse_without_frame(utterances: Iterable[Utterance], faults: Faults) -> None:
    for u in utterances:
        if u.samples <= SAMPLES_WITHOUT_FRAME:
            faults.add(
                "too short for a frame",
                f"{u.path}: utterance {u.id} has {u.samples} samples, too few for one feature frame: give at least "
                f"{SAMPLES_WITHOUT_FRAME + 1}, or take it out of the test set",
            )


def _report(name: str, split: str, content: Mapping[str, Any]) -> None:
    copies = ", ".join(f"{n} at speed {factor}" for factor, n in content["speed_histogram"].items())
    original = content["original_seconds"]
    print(
        f"{name}: {split} has {content['utterances']} utterances ({copies}), {content['seconds']:.0f} s in all, "
        f"{content['seconds'] / original:.2f} x the {original:.0f} s of the corpus",
        file=sys.stderr,
    )
