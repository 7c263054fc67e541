"""What holds across the splits of a corpus: seen in their manifests and summaries, without a look at the audio."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geomix import files
from geomix.errors import UserError
from geomix.speech.corpora.faults import Faults
from geomix.speech.corpora.preparation import SUMMARY
from geomix.speech.corpora.sources import AUDIO
from geomix.speech.corpora.splits import check_counts, choices
from geomix.speech.manifest import Utterance, original_id, read_manifest

_COUNTS = ("utterances", "speakers", "words", "characters")
_SUMMARY = ("utterances", "speakers", "words", "characters", "seconds", "speed_histogram", "hash")


def read_summary(path: str | os.PathLike) -> dict[str, Any]:
    """split.json of a prepared split; `UserError` for a part that preparation does not write so."""
    found = files.read_object(path, "split", "sources", "dropped", "original_seconds", *_SUMMARY)
    ids = lambda value: isinstance(value, list) and all(isinstance(i, str) for i in value)
    counts = lambda value: isinstance(value, dict) and all(type(value.get(key)) is int for key in _COUNTS)
    of = lambda value, keys: isinstance(value, dict) and value.keys() == keys
    right = (
        isinstance(found, dict)
        and counts(found)
        and isinstance(found["split"], str)
        and isinstance(found["hash"], str)
        and all(isinstance(found[key], int | float) and found[key] >= 0 for key in ("seconds", "original_seconds"))
        and isinstance(found["sources"], dict)
        and all(map(counts, found["sources"].values()))
        and of(found["dropped"], {"too_long", "too_short"})
        and all(map(ids, found["dropped"].values()))
    )
    if not right:
        raise UserError(f"{path}: is not as preparation writes it: prepare the split again")
    return found


def check_corpus(
    corpus: Mapping[str, Any], folders: Mapping[str, str | os.PathLike], out: str | os.PathLike
) -> dict[str, Any]:
    """Compare the prepared splits of a corpus and write its summary to `out`, whose content is returned.

    Parameters
    ----------
    folders : split -> folder that `prepare_split` wrote, for train, dev and each test set

    Returns
    -------
    name, kind, splits {split: summary}, dropped {train:, dev:}, speed_factors, original_train_seconds, speed_ratio,
    max_seconds, min_seconds.

    Raises
    ------
    UserError
        For an utterance of train that is in another split too, an id that names two recordings, and counts that are
        not the expected or published ones.
    """
    if missing := [split for split in choices(corpus) if split not in folders]:
        raise UserError(f"corpus {corpus['name']}: split {missing[0]} is not prepared: prepare every split first")
    splits, faults = {}, Faults()
    for split in choices(corpus):
        path = Path(folders[split]) / SUMMARY
        splits[split] = read_summary(path)
        if splits[split]["split"] != split:
            raise UserError(f"{path}: is of the split {splits[split]['split']}, not of {split}: prepare it again")
        for source, counts in splits[split]["sources"].items():
            check_counts(corpus, source, counts, faults)
    check_ids(
        corpus["name"],
        {s: read_manifest(Path(folders[s]) / "manifest" / f"{s}.tsv") for s in splits},
        {s: found["dropped"] for s, found in splits.items()},
        faults,
    )
    train = splits["train"]
    content = {
        "name": corpus["name"],
        "kind": corpus["kind"],
        "splits": {split: {key: found[key] for key in _SUMMARY} for split, found in splits.items()},
        "dropped": {split: splits[split]["dropped"] for split in ("train", "dev")},
        "speed_factors": [float(factor) for factor in corpus["speed_factors"]],
        "original_train_seconds": train["original_seconds"],
        "speed_ratio": train["seconds"] / max(train["original_seconds"], 1e-9),
        "max_seconds": corpus["max_seconds"],
        "min_seconds": corpus["min_seconds"],
    }
    files.write_json(out, content)
    return content


def check_ids(
    name: str,
    splits: Mapping[str, Sequence[Utterance]],
    dropped: Mapping[str, Mapping[str, Sequence[str]]],
    faults: Faults,
) -> None:
    """An id names one recording, in whatever split; and no utterance of train, dropped ones included, is in another split."""
    seen: dict[str, Utterance] = {}
    ids: dict[str, set[str]] = {}
    for split, utterances in splits.items():
        ids[split] = {original_id(i) for left_out in dropped[split].values() for i in left_out}
        for u in utterances:
            i = original_id(u.id)
            ids[split].add(i)
            first = seen.setdefault(i, u)
            if (first.speaker, first.text) != (u.speaker, u.text) or _other_audio(first, u):
                faults.add("id twice", f"{u.path}: id {i} is also that of {first.path}: make each id unique")
    for split, others in ids.items():
        shared = ids["train"] & others if split != "train" else ()
        for i in sorted(shared):
            faults.add(
                "utterance of train in another split",
                f"corpus {name}: utterance {i} is in train and in {split}: keep it in one of them",
            )


def _other_audio(a: Utterance, b: Utterance) -> bool:
    """Whether two utterances come from different files; each split keeps its own copy of what was converted for it."""
    kept = all(Path(u.path).parent.name == AUDIO and u.speed == 1.0 for u in (a, b))
    return a.samples != b.samples if kept else a.path != b.path
