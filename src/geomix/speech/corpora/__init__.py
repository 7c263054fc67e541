"""Corpora: each kind is read by one module of this package and leaves as manifests of one form.

A corpus config is a dictionary:

    name: an4                          # names the folder data/<name>
    kind: folder                       # librispeech, folder, kaldi, manifest, smoke or demo
    path: ../shared/data/an4           # where it lies (smoke and demo are generated and need none)
    train: [train]                     # splits of the corpus whose union is the manifest `train`
    dev: [dev-clean, dev-other]        # the same for `dev`, or {hold_out_speakers: [...]}: taken out of train
    test: [test]                       # each becomes a manifest of its own name; or {NAME: {hold_out_speakers: [...]}}
    expected: {train: {utterances: 948, speakers: 74}}    # counts to assert, before any dropping or holding out

A kind is a module with `read_split(corpus, split, out) -> list[Recording]` and, where counts are published,
`published(name) -> {split: {utterances:, speakers:, words:, characters:}}`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from geomix import files
from geomix.errors import UserError
from geomix.speech.audio import inspect_audio
from geomix.speech.manifest import SAMPLE_RATE, Recording, Utterance, original_id, summary, write_manifest
from geomix.speech.parallel import Progress, processors

KINDS = ("librispeech", "folder", "kaldi", "manifest", "smoke", "demo")


def prepare_corpus(
    corpus: dict,
    out: str | os.PathLike,
    speed_factors: Sequence[float] = (1.0,),
    max_seconds: float = 30.0,
    min_seconds: float = 0.1,
    threads: int | None = None,
) -> dict:
    """Check a corpus and write `<out>/manifest/<split>.tsv` and, last, `<out>/corpus.json`, whose content is returned.

    Every recording is decoded in full. `train` holds one copy of each utterance per speed factor. Utterances of train
    and dev that are longer than `max_seconds` or shorter than `min_seconds` after perturbation are dropped, logged by
    id and counted, as ESPnet's recipes do; test sets stay whole.

    Raises
    ------
    UserError
        For a bad recording or transcript, and for counts that differ from the published or expected ones.
    """
    out = Path(out)
    if len(set(speed_factors)) != len(speed_factors) or not speed_factors:
        raise UserError(f"speed_factors {list(speed_factors)}: give each factor once, [0.9, 1.0, 1.1] for instance")
    splits = _read_splits(corpus, out)
    recordings = {r.id: r for split in splits.values() for r in split}
    audio = _inspect(corpus["name"], recordings.values(), threads)
    utterances = {
        split: [Utterance(r.id, r.speaker, r.path, audio[r.path][0], 1.0, r.text) for r in found]
        for split, found in splits.items()
    }
    original_seconds = sum(u.samples for u in utterances["train"]) / SAMPLE_RATE
    utterances["train"] = [u.at_speed(factor) for factor in speed_factors for u in utterances["train"]]
    dropped = {}
    for split in ("train", "dev"):
        long = [u.id for u in utterances[split] if u.seconds > max_seconds]
        short = [u.id for u in utterances[split] if u.seconds < min_seconds]
        dropped[split] = {"too_long": sorted(long), "too_short": sorted(short)}
        for word, ids, limit in (("longer", long, max_seconds), ("shorter", short, min_seconds)):
            if ids:
                print(f"{split}: {len(ids)} utterances {word} than {limit} s dropped: {' '.join(ids)}", file=sys.stderr)
        gone = {*long, *short}
        utterances[split] = [u for u in utterances[split] if u.id not in gone]
        if not utterances[split]:
            raise UserError(
                f"corpus {corpus['name']}: no utterance is left in {split}: look at max_seconds in the config"
            )
    for split, found in utterances.items():
        write_manifest(out / "manifest" / f"{split}.tsv", found)
    hashes = {path: digest for path, (_, digest) in audio.items()}
    train = summary(utterances["train"], hashes)
    content = {
        "name": corpus["name"],
        "kind": corpus["kind"],
        "splits": {split: summary(found, hashes) for split, found in utterances.items()},
        "dropped": dropped,
        "speed_factors": [float(factor) for factor in speed_factors],
        "original_train_seconds": original_seconds,
        "speed_ratio": train["seconds"] / original_seconds,
        "max_seconds": max_seconds,
        "min_seconds": min_seconds,
    }
    files.write_json(out / "corpus.json", content)
    copies = ", ".join(f"{n} at speed {factor}" for factor, n in train["speed_histogram"].items())
    print(
        f"{corpus['name']}: train has {train['utterances']} utterances ({copies}), {train['seconds']:.0f} s in all, "
        f"{content['speed_ratio']:.2f} x the {original_seconds:.0f} s of the corpus",
        file=sys.stderr,
    )
    return content


def _read_splits(corpus: dict, out: Path) -> dict[str, list[Recording]]:
    """Recordings of train, dev and each test set, with counts, ids and texts checked and speakers held out."""
    name, kind = corpus["name"], corpus["kind"]
    if kind not in KINDS:
        raise UserError(f"corpus {name}: kind {kind!r} is not one of {', '.join(KINDS)}")
    reader = importlib.import_module(f"{__name__}.{kind}")
    published = reader.published(name) if hasattr(reader, "published") else {}
    read: dict[str, list[Recording]] = {}

    def union(names: Iterable[str]) -> list[Recording]:
        for split in names:
            if split not in read:
                read[split] = reader.read_split(corpus, split, out)
                if not read[split]:
                    raise UserError(f"corpus {name}: split {split} has no utterance: check the path in the config")
                _check_counts(name, split, read[split], {**published, **corpus.get("expected", {})}.get(split, {}))
        return [recording for split in names for recording in read[split]]

    train = union(corpus["train"])
    held_out: set[str] = set()

    def take(choice: Sequence[str] | dict, what: str) -> list[Recording]:
        if not isinstance(choice, dict):
            return union(choice)
        speakers = [str(speaker) for speaker in choice["hold_out_speakers"]]
        for speaker in speakers:
            if speaker in held_out:
                raise UserError(f"corpus {name}: speaker {speaker} is held out twice: leave one of dev and {what}")
            if not any(r.speaker == speaker for r in train):
                raise UserError(f"corpus {name}: {what} holds out {speaker}, a speaker whom train lacks: correct it")
        held_out.update(speakers)
        return [r for r in train if r.speaker in speakers]

    dev = take(corpus["dev"], "dev")
    tests = corpus["test"]
    if not isinstance(tests, dict):
        tests = {split: [split] for split in tests}
    splits = {test: take(choice, f"test set {test}") for test, choice in tests.items()}
    if "train" in splits or splits.setdefault("dev", dev) != dev:
        raise UserError(f"corpus {name}: a test set is called train, or dev without being dev: give it another name")
    splits["train"] = [r for r in train if r.speaker not in held_out]
    _check_unique(name, splits)
    return splits


def _check_counts(name: str, split: str, recordings: list[Recording], expected: dict) -> None:
    found = {
        "utterances": len(recordings),
        "speakers": len({r.speaker for r in recordings}),
        "words": sum(len(r.text.split()) for r in recordings),
        "characters": sum(len(r.text) for r in recordings),
    }
    for what, count in expected.items():
        if found[what] != count:
            raise UserError(
                f"corpus {name}: {split} has {found[what]} {what} instead of {count}: complete the copy, or state the "
                f"count of a cut as expected: {{{split}: {{{what}: {found[what]}}}}} in the config"
            )


def _check_unique(name: str, splits: dict[str, list[Recording]]) -> None:
    """An id names one recording, within a split and across train and the rest."""
    seen: dict[str, Recording] = {}
    for recordings in splits.values():
        ids = set()
        for recording in recordings:
            if recording.id in ids or seen.setdefault(recording.id, recording) != recording:
                other = seen[recording.id].path
                raise UserError(f"{recording.path}: id {recording.id} is also that of {other}: make each id unique")
            if original_id(recording.id) != recording.id:
                raise UserError(f"{recording.path}: id {recording.id} looks like a speed copy's: rename it")
            ids.add(recording.id)
    train = {r.id for r in splits["train"]}
    for split, recordings in splits.items():
        shared = train.intersection(r.id for r in recordings) if split != "train" else ()
        if shared:
            raise UserError(
                f"corpus {name}: utterance {min(shared)} is in train and in {split}: keep it in one of them"
            )


def _inspect(name: str, recordings: Iterable[Recording], threads: int | None) -> dict[str, tuple[int, str]]:
    """Samples and hash of every recording's audio, by path. Decoding releases the interpreter lock: threads do."""
    paths = sorted({r.path for r in recordings})
    progress = Progress(f"checking {name}", len(paths))
    found = {}
    with ThreadPoolExecutor(threads or processors()) as pool:
        for path, (samples, digest) in zip(paths, pool.map(inspect_audio, paths), strict=True):
            found[path] = (samples, digest)
            progress.add(1, samples / SAMPLE_RATE)
    progress.close()
    return found
