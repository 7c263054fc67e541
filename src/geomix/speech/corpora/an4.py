"""CMU AN4 from its public archive, in the folder form that the configuration an4 reads.

The archive an4_sphere.tar.gz (http://www.speech.cs.cmu.edu/databases/an4/) holds an4/etc/an4_{train,test}.transcription,
with a line `<s> WORDS </s> (FILE-SPEAKER-b)` each (the test set's without the marks), and the recordings as NIST sphere files:
an4/wav/an4_clstk/SPEAKER/FILE-SPEAKER-b.sph to train, an4/wav/an4test_clstk/... to test. Its licence is free for any use.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from collections import Counter
from pathlib import Path

from geomix.errors import UserError
from geomix.speech.corpora.folder import published
from geomix.speech.corpora.generated import write_recording
from geomix.speech.manifest import read_lines

URL = "http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz"
_FOLDERS = {"train": "an4_clstk", "test": "an4test_clstk"}
_LINE = re.compile(r"(?:<s>)?\s*(?P<text>.*?)\s*(?:</s>)?\s*\((?P<id>[^()\s]+)\)")


def convert(archive: str | os.PathLike, folder: str | os.PathLike) -> dict[str, int]:
    """Write the archive's recordings to `folder`/{train,test}/SPEAKER/1/SPEAKER-1-NNNN.flac with *.trans.txt.

    A speaker's utterances are numbered in the order of the transcription file. `archive` may also be a folder that it was
    unpacked to. The folder appears whole or not at all; returns the number of utterances of each split.
    """
    archive, folder = Path(archive), Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is there already and is left as it is: name another folder, or remove it")
    building = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    try:
        building.mkdir(parents=True)
        root = _unpacked(archive, building / "archive")
        counts = {split: _convert_split(root, split, building / "an4" / split) for split in _FOLDERS}
        if folder.exists():
            folder.rmdir()
        (building / "an4").rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return counts


def _unpacked(archive: Path, folder: Path) -> Path:
    """The folder that holds etc/ and wav/."""
    if archive.is_dir():
        folder = archive
    else:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        except FileNotFoundError:
            raise UserError(f"{archive}: no such file: download it from {URL}") from None
        except (tarfile.TarError, EOFError, OSError) as error:
            raise UserError(f"{archive}: cannot be unpacked ({error}): download it again from {URL}") from None
    for root in (folder, folder / "an4"):
        if (root / "etc" / "an4_train.transcription").is_file():
            return root
    raise UserError(f"{archive}: has no an4/etc/an4_train.transcription: give an4_sphere.tar.gz of {URL}")


def _convert_split(root: Path, split: str, folder: Path) -> int:
    from geomix.speech.audio import read_audio

    listing = root / "etc" / f"an4_{split}.transcription"
    numbers: Counter[str] = Counter()
    for number, line in enumerate(read_lines(listing, f"give the archive of {URL}"), 1):
        if not line.strip():
            continue
        found = _LINE.fullmatch(line.strip())
        parts = found["id"].split("-") if found else []
        if len(parts) != 3 or not found["text"]:
            raise UserError(
                f"{listing}: line {number} is {line!r}, not `WORDS (FILE-SPEAKER-b)`: download the archive again"
            )
        speaker = parts[1]
        waveform = read_audio(root / "wav" / _FOLDERS[split] / speaker / f"{found['id']}.sph")
        write_recording(folder, speaker, 1, numbers[speaker], waveform, " ".join(found["text"].upper().split()))
        numbers[speaker] += 1
    return numbers.total()


def complete(counts: dict[str, int]) -> bool:
    """Whether the counts are those of the published corpus."""
    return all(counts[split] == found["utterances"] for split, found in published("an4").items())
