"""The recordings of a page: linked where they lie, or copied beside it as MP3 with their spectrograms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from geomix.errors import UserError
from geomix.files import atomic_path
from geomix.speech.manifest import Utterance, read_manifest
from geomix.training.results import Study

DATA = "$GEOMIX_DATA/"  # how a published manifest names the folder of local data sets
CORPUS = "$CORPUS/"  # stands on a page for the folder that a published manifest is relative to
DATA_ROOT = "../shared/data"  # what $GEOMIX_DATA is by default, from the project's root
WINDOW, HOP = 512, 160  # samples: 32 ms and 10 ms at 16 kHz
DECIBELS = 70  # what a spectrogram shows below its loudest point


@dataclass(frozen=True)
class Recording:
    """An utterance of an evaluation set and its audio: `link` from the page, `source` on this machine (None where nobody knows)."""

    set: str
    utterance: Utterance
    link: str
    source: Path | None


def manifest_of(study: Study, name: str) -> Path:
    """The manifest of an evaluation set: a published run's own, or the one that study.json names; none is a `UserError`."""
    published = study.folder / "manifests" / f"{name}.tsv"
    named = (study.settings.get("manifests") or {}).get(name)
    # as the workflow sees it: relative to the folder that holds results/
    places = [published, *((Path(named), study.folder.resolve().parents[1] / named) if named else ())]
    for path in places:
        if path.is_file():
            return path
    raise UserError(
        f"{places[-1]}: no such file, and the page takes the references of {name} from it: prepare the corpus again"
    )


def recordings_of(study: Study, name: str, page: Path) -> Iterator[Recording]:
    """The utterances of a set with their recordings, as linked from the folder `page`.

    A published manifest names its recordings from $GEOMIX_DATA, or from the corpus's folder, and so does the link.
    """
    manifest = manifest_of(study, name)
    folder, published = manifest.parent.absolute(), manifest.parent.name == "manifests"
    for u in read_manifest(manifest):
        plain = os.path.relpath(u.path, folder)
        if not published:
            yield Recording(name, u, os.path.relpath(u.path, page.absolute()), Path(u.path))
        elif plain.startswith(DATA):
            root = Path(os.environ.get("GEOMIX_DATA", DATA_ROOT))
            yield Recording(name, u, plain, root / plain.removeprefix(DATA))
        else:
            yield Recording(name, u, CORPUS + plain, None)


def data_base(study: Study) -> str:
    """$GEOMIX_DATA's default place as an address from the page of a run in the project's folder; elsewhere empty."""
    page = study.folder.absolute() / "page"
    root = next((place for place in page.parents if (place / "Snakefile").is_file()), None)
    return "" if root is None else os.path.relpath(os.path.normpath(root / DATA_ROOT), page) + "/"


def copy_recordings(study: Study, page: Path) -> dict[str, Any]:
    """Copy the recordings of all evaluation sets to `page/audio`, as MP3 and as pictures of their spectrograms.

    Returns `audio` of data.js: the path of each utterance, empty where there is no recording to copy.
    """
    paths = []
    for recording in (r for name in study.sets for r in recordings_of(study, name, page)):
        path = f"{recording.set}/{recording.utterance.id}"
        if recording.source is None or not recording.source.is_file():
            paths.append("")
            continue
        samples, rate = soundfile.read(recording.source, dtype="float32", always_2d=True)
        samples = samples.mean(axis=1)
        target = page / "audio" / f"{path}.mp3"
        with atomic_path(target) as temporary:
            soundfile.write(temporary, samples, rate, format="MP3")
        draw_spectrogram(samples, rate, target.with_suffix(".png"))
        paths.append(f"{path}.mp3")
    return {"copied": True, "base": "audio/", "path": "\n".join(paths)}


def draw_spectrogram(samples: np.ndarray, rate: int, path: Path) -> None:
    """Draw the log power of samples (n,) at `rate` Hz as PNG: a column every 10 ms, a row about 62 Hz at 16 kHz, high ones above."""
    from matplotlib import colormaps
    from PIL import Image

    step = HOP * rate // 16000
    padded = np.pad(samples, (WINDOW // 2, WINDOW // 2 + step))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::step] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames))[:, 1:] ** 2
    power = power.reshape(len(power), -1, 2).mean(axis=2)  # 128 rows
    level = 10 * np.log10(power + 1e-10)
    scaled = np.clip(1 + (level - level.max()) / DECIBELS, 0, 1)
    colours = (colormaps["magma"](np.arange(256))[:, :3] * 255).astype(np.uint8)
    image = Image.fromarray((scaled.T[::-1] * 255).astype(np.uint8), mode="P")
    image.putpalette(colours.tobytes())
    with atomic_path(path) as temporary:
        image.save(temporary, format="PNG", optimize=True)
