"""`geomix transcribe`: words, with times where they are asked for, of recordings of any length."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from geomix.commands.arguments import positive
from geomix.commands.recordings import finish, told
from geomix.errors import UserError
from geomix.files import write_text
from geomix.speech.manifest import AUDIO_SUFFIXES

if TYPE_CHECKING:
    from geomix.speech.transcription import Transcript

FORMATS = ("text", "json", "ctm", "vtt", "srt")
SUBTITLES = ("vtt", "srt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="folder with model.safetensors, model.yaml, tokenizer.model and tokens.txt",
    )
    parser.add_argument(
        "audio",
        nargs="+",
        type=Path,
        metavar="AUDIO",
        help="recordings of any length, or folders of them; WAV, FLAC, Ogg, Opus, MP3 and whatever else libsndfile reads",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text: FILE<tab>TEXT a line; json: an object a line; ctm: NIST's, for sclite; vtt, srt: subtitles (default: text)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write a file a recording there instead of standard output"
    )
    parser.add_argument(
        "--resample",
        action="store_true",
        help="take recordings of any rate and number of channels: resampled to 16 kHz, and the mean of the channels",
    )
    parser.add_argument(
        "--max-seconds",
        type=positive,
        default=30.0,
        metavar="S",
        help="a longer recording is decoded in windows of S seconds that overlap by a fifth; attention's memory grows with "
        "the square of a window (default: %(default)s)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: auto)")


@dataclass(frozen=True)
class Named:
    """A recording, and what it is called in a CTM and in the output folder."""

    path: Path
    name: str


def run(arguments: argparse.Namespace) -> None:
    """Transcribe each recording in the order given; one that cannot be read or decoded is told, and the status is 1."""
    from geomix.speech import subtitles
    from geomix.speech.audio import mono_blocks
    from geomix.speech.decoding import load_recogniser
    from geomix.speech.transcription import transcribe
    from geomix.training.devices import choose_device

    if arguments.max_seconds < 1:
        raise UserError(f"--max-seconds {arguments.max_seconds}: give at least 1")
    failures: list = []
    recordings = find_recordings(arguments.audio, failures)
    _check_names(recordings, arguments)
    device = choose_device(arguments.device)
    model, tokenizer = load_recogniser(arguments.model, device)
    for recording in recordings:
        with told(failures):
            blocks = mono_blocks(recording.path, arguments.resample)
            found = transcribe(
                model, tokenizer, str(recording.path), blocks, max_seconds=arguments.max_seconds, device=device
            )
            if found.windows > 1:
                print(
                    f"{recording.path}: longer than {arguments.max_seconds:g} s, decoded in {found.windows} windows",
                    file=sys.stderr,
                )
            text = _text(found, recording, arguments.format)
            if arguments.out:
                write_text(arguments.out / f"{recording.name}{subtitles.SUFFIXES[arguments.format]}", text)
            else:
                print(text, end="", flush=True)
    finish(failures)


def _text(found: Transcript, recording: Named, form: str) -> str:
    from geomix.speech import subtitles

    if form == "ctm":
        return subtitles.as_ctm(found, recording.name)
    return {
        "text": subtitles.as_text,
        "json": subtitles.as_json,
        "vtt": subtitles.as_vtt,
        "srt": subtitles.as_srt,
    }[form](found)


def find_recordings(paths: Sequence[Path], failures: list) -> list[Named]:
    """The files named, and all recordings below the folders named, by their path there; a folder without any is told."""
    found = []
    for path in paths:
        if not path.is_dir():
            found.append(Named(path, path.stem))
            continue
        below = sorted(p for p in path.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES and p.is_file())
        found += [Named(p, p.relative_to(path).with_suffix("").as_posix()) for p in below]
        if not below:
            with told(failures):
                raise UserError(f"{path}: no recordings in this folder: name files, or another folder")
    return found


def _check_names(recordings: Sequence[Named], arguments: argparse.Namespace) -> None:
    """Refuse what could not be told apart in the output, before anything is decoded."""
    if arguments.format in SUBTITLES and not arguments.out and len(recordings) > 1:
        raise UserError(f"--format {arguments.format}: holds one recording a file: give --out FOLDER for several")
    names = Counter("_".join(recording.name.split()) for recording in recordings)
    twice = [name for name, count in names.items() if count > 1]
    if twice and (arguments.out or arguments.format == "ctm"):
        raise UserError(
            f"{len(twice)} names are those of several recordings (first: {twice[0]}): rename them, or give the folder that "
            "holds them all"
        )
