"""Kaldi data folders: `<path>/<split>/` with wav.scp, text and utt2spk (https://kaldi-asr.org/doc/data_prep.html)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.speech.manifest import Recording, read_lines


def listings(corpus: Mapping[str, Any], split: str) -> list[Path]:
    """The tables of one data folder."""
    return [Path(corpus["path"]) / split / table for table in ("wav.scp", "text", "utt2spk")]


def read_split(corpus: Mapping[str, Any], split: str) -> list[Recording]:
    """Recordings of one data folder, sorted by id.

    wav.scp must name plain files, relative ones from the config's `audio_root` (default: the data folder); commands
    that end in a pipe and `segments` are refused. Without utt2spk every utterance is its own speaker.
    """
    folder = Path(corpus["path"]) / split
    audio_root = Path(corpus.get("audio_root") or folder)
    if (folder / "segments").exists():
        raise UserError(f"{folder / 'segments'}: segments are not read: cut the recordings first (extract-segments)")
    audio, texts = _read_table(folder / "wav.scp"), _read_table(folder / "text")
    speakers = _read_table(folder / "utt2spk") if (folder / "utt2spk").exists() else {i: i for i in texts}
    recordings = []
    for utterance_id in sorted({*audio, *texts}):
        for table, name in ((audio, "wav.scp"), (texts, "text"), (speakers, "utt2spk")):
            if utterance_id not in table:
                raise UserError(
                    f"{folder / name}: no line for utterance {utterance_id}: add it, or remove it everywhere"
                )
        command = audio[utterance_id]
        if command.endswith("|"):
            raise UserError(
                f"{folder / 'wav.scp'}: {utterance_id} is the command {command!r}: write its output to a file and name that"
            )
        if not texts[utterance_id]:
            raise UserError(
                f"{folder / 'text'}: the transcript of {utterance_id} is empty: write it or remove the line"
            )
        path = str((audio_root / command).absolute())
        text = " ".join(texts[utterance_id].split())
        recordings.append(Recording(utterance_id, speakers[utterance_id], path, text, str(folder / "text")))
    return recordings


def _read_table(path: Path) -> dict[str, str]:
    """A Kaldi table: an id, white space, and the rest of the line."""
    table = {}
    for line in read_lines(path, "a Kaldi data folder needs wav.scp, text and utt2spk"):
        if not line.strip():
            continue
        key, *rest = line.strip().split(maxsplit=1)
        if key in table:
            raise UserError(f"{path}: id {key} is there twice: remove one of its lines")
        table[key] = rest[0] if rest else ""
    return table
