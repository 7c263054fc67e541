"""What lies in a folder: which of the forms that are read here its recordings and transcripts have, and what they amount to."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.settings.base import NAME
from geomix.speech.corpora import folder as folder_form
from geomix.speech.corpora import kaldi, manifest
from geomix.speech.corpora.faults import Faults
from geomix.speech.manifest import AUDIO_SUFFIXES, SAMPLE_RATE, Recording, read_lines

_TRANSCRIPT_SUFFIXES = ("", ".txt", ".tsv", ".csv", ".text", ".trans", ".lst")
# names of columns in tables that people have
_PATH_COLUMNS = ("path", "file", "filename", "file_name", "audio", "audio_path", "wav", "id", "name", "utterance")
_TEXT_COLUMNS = ("text", "sentence", "transcript", "transcription", "normalized_text", "words")
_SPEAKER_COLUMNS = ("speaker", "speaker_id", "client_id", "spk", "spk_id")


@dataclass(frozen=True)
class Form:
    """A corpus as it was found.

    kind, path, audio_root : as the configuration takes them; kind None: no form that is read, its table has to be written
    splits : name -> recordings of each split
    said : what was found, in sentences
    """

    kind: str | None
    path: Path
    splits: dict[str, list[Recording]]
    audio_root: Path | None = None
    said: list[str] = field(default_factory=list)

    @property
    def recordings(self) -> list[Recording]:
        """Those of all splits."""
        return [recording for recordings in self.splits.values() for recording in recordings]


@dataclass(frozen=True)
class Sounds:
    """What the headers of recordings say: seconds by utterance id, and how many have which rate and number of channels."""

    seconds: dict[str, float]
    forms: Counter[str]

    @property
    def plain(self) -> bool:
        """All have 16 kHz and one channel."""
        return set(self.forms) <= {_form(SAMPLE_RATE, 1)}


def look(folder: Path, allow_pipes: bool = False) -> Form:
    """The form of what lies in `folder` (for manifests also the table itself), its splits read; `UserError` when it is none."""
    if folder.is_file():
        found = _manifests([folder])
    elif not folder.is_dir():
        raise UserError(f"{folder}: no such folder: name the folder of your recordings")
    else:
        found = (
            _kaldi(folder, allow_pipes)
            or _manifests(sorted(folder.glob("*.tsv")))
            or _librispeech(folder)
            or _one_listing(folder)
        )
    if found is None:
        raise UserError(
            f"{folder}: is neither a Kaldi folder (wav.scp), nor tables with the columns id, speaker, path, text (*.tsv), nor "
            "in LibriSpeech's form (*.trans.txt), nor recordings beside one file with a line for each: see docs/your-own-data.md"
        )
    if not found.recordings:
        raise UserError(
            f"{found.path}: no utterance was found there: look at what `geomix init` needs in docs/your-own-data.md"
        )
    return found


def _corpus(kind: str, path: Path, **keys: Any) -> dict[str, Any]:
    return {"kind": kind, "path": str(path), "name": path.name, **keys}


def _fitting(names: Iterable[str]) -> list[str]:
    """Names that a split of the configuration may have."""
    return [name for name in names if re.match(NAME, name)]


def _kaldi(folder: Path, allow_pipes: bool) -> Form | None:
    names = [folder.name] if (folder / "wav.scp").is_file() else []
    path = folder.resolve().parent if names else folder
    names = _fitting(names or sorted(table.parent.name for table in folder.glob("*/wav.scp")))
    if not names:
        return None
    said = [f"a Kaldi data folder: {', '.join(names)}"]
    root = _audio_root(path, names)
    faults = Faults(collect=True)
    corpus = _corpus("kaldi", path, audio_root=root and str(root), allow_pipes=allow_pipes)
    splits = {name: kaldi.read_split(corpus, name, faults) for name in names}
    if commands := faults.kinds(stops=True).get("command for a recording"):
        raise UserError(
            f"{path}: {len(commands)} recordings are commands that end in a pipe: look whether they may run here, then give "
            "--allow-pipes"
        )
    for name in names:
        for table, what in (("segments", "utterances are cut out of longer recordings"), ("utt2spk", None)):
            there = (path / name / table).exists()
            if there and what:
                said.append(f"{name}/{table}: {what}")
            elif not there and not what:
                said.append(
                    f"{name} has no utt2spk: each utterance is a speaker of its own; intervals over speakers need it"
                )
    return Form("kaldi", path, splits, root, said)


def _audio_root(path: Path, names: list[str]) -> Path | None:
    """Where the relative paths of wav.scp start: the data folder (None), or the first folder above it, or this one, that has them."""
    for name in names:
        lines = read_lines(path / name / "wav.scp", "a Kaldi folder needs it")
        places = [line.split(maxsplit=1)[1].strip() for line in lines if len(line.split(maxsplit=1)) == 2]
        relative = [place for place in places if not place.endswith("|") and not Path(place).is_absolute()][:5]
        if relative and not all((path / name / place).exists() for place in relative):
            for root in (path, *path.parents, Path.cwd()):
                if all((root / place).exists() for place in relative):
                    return root
    return None


def _manifests(tables: list[Path]) -> Form | None:
    tables = [table for table in tables if _is_manifest(table) and _fitting([table.stem])]
    if not tables:
        return None
    path, faults = tables[0].parent, Faults(collect=True)
    splits = {table.stem: manifest.read_split(_corpus("manifest", path), table.stem, faults) for table in tables}
    return Form("manifest", path, splits, said=[f"tables with id, speaker, path, text: {', '.join(splits)}"])


def _is_manifest(table: Path) -> bool:
    try:
        header = read_lines(table, "")[0].rstrip("\r").split("\t")
    except UserError:
        return False
    return set(manifest.COLUMNS) <= set(header)


def _librispeech(folder: Path) -> Form | None:
    path, names = (
        folder,
        _fitting(sorted({listing.parents[2].name for listing in folder.glob("*/" + folder_form.LISTINGS)})),
    )
    if not names and any(folder.glob(folder_form.LISTINGS)):
        path, names = folder.resolve().parent, _fitting([folder.resolve().name])
    if not names:
        return None
    faults = Faults(collect=True)
    splits = {name: folder_form.read_split(_corpus("folder", path), name, faults) for name in names}
    return Form(
        "folder", path, splits, said=[f"LibriSpeech's form, speakers' folders with *.trans.txt: {', '.join(names)}"]
    )


def _one_listing(folder: Path) -> Form | None:
    """Recordings anywhere below a folder, and one file in it whose lines name them."""
    audio: dict[str, Path] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES and path.is_file()):
        for key in (str(path.relative_to(folder)), path.name, path.stem):
            audio.setdefault(key, path)
    listings = [p for p in sorted(folder.iterdir()) if p.is_file() and p.suffix.lower() in _TRANSCRIPT_SUFFIXES]
    best: list[tuple[Path, str, str | None]] = []
    chosen = None
    for listing in listings:
        try:
            lines = read_lines(listing, "")
        except UserError:
            continue
        named = [(audio[key], text, speaker) for key, text, speaker in _rows(lines, audio) if key in audio and text]
        if len(named) > len(best):
            best, chosen = named, listing
    if not chosen:
        return None
    recordings, how = _with_speakers(folder, chosen, best)
    without = len(set(audio.values())) - len(recordings)
    said = [f"recordings and one file with their transcripts: {chosen}", how]
    said += [f"{without} recordings have no line there and are left out"] if without else []
    return Form(None, folder, {"all": recordings}, said=said)


def _rows(lines: list[str], audio: dict[str, Path]) -> Iterator[tuple[str, str, str | None]]:
    """(what names the recording, text, speaker) of each line: columns by their header, else the first field and the last one."""
    separator = next((s for s in ("\t", "|") if sum(s in line for line in lines) > len(lines) / 2), None)
    if separator is None and lines and re.split(r"[,\s]", lines[0])[0] not in audio and "," in lines[0]:
        separator = ","
    rows = list(csv.reader(lines)) if separator == "," else [
        line.split(separator) if separator else line.strip().split(maxsplit=1) for line in lines if line.strip()
    ]  # fmt: skip
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    where = [next((header.index(n) for n in names if n in header), None) for names in (_PATH_COLUMNS, _TEXT_COLUMNS)]
    if None not in where:
        speaker = next((header.index(name) for name in _SPEAKER_COLUMNS if name in header), None)
        for row in rows[1:]:
            if len(row) == len(header):
                yield row[where[0]].strip(), row[where[1]].strip(), None if speaker is None else row[speaker].strip()
        return
    for row in rows:
        if len(row) > 1:
            yield row[0].strip(), row[-1].strip(), None


def _with_speakers(
    folder: Path, listing: Path, named: list[tuple[Path, str, str | None]]
) -> tuple[list[Recording], str]:
    """Recordings with ids made of their places, and how their speakers were found."""
    places = [path.relative_to(folder).with_suffix("") for path, _, _ in named]
    given = [speaker for _, _, speaker in named]
    parents = ["-".join(place.parts[:-1]) for place in places]
    prefixes = [re.split(r"[-_.]", place.name)[0] for place in places]
    if all(given):
        speakers, how = [re.sub(r"\s|/", "_", str(s)) for s in given], "speakers are those of its column"
    elif len(set(parents)) > 1 and all(parents):
        speakers, how = parents, "speakers are the folders in which the recordings lie"
    elif 2 < len(set(prefixes)) <= len(prefixes) / 2:
        speakers, how = prefixes, "speakers are what stands before the first - or _ in the names of the recordings"
    else:
        speakers, how = [folder.resolve().name] * len(named), "no speakers are known: all is taken to be of one"
    found: dict[str, Recording] = {}
    for (path, text, _), place, speaker in zip(named, places, speakers, strict=True):
        i = re.sub(r"\s", "_", "-".join(place.parts))
        found.setdefault(
            i, Recording(i, re.sub(r"\s", "_", speaker), str(path.absolute()), " ".join(text.split()), str(listing))
        )
    return list(found.values()), how


def listen(recordings: Iterable[Recording]) -> Sounds:
    """Seconds and forms of recordings, from their headers alone; a command's or a damaged file's seconds are reckoned from the text."""
    import soundfile

    headers: dict[str, tuple[int, int, int] | None] = {}
    seconds: dict[str, float] = {}
    forms: Counter[str] = Counter()
    for recording in recordings:
        if recording.path not in headers:
            headers[recording.path] = None
            if recording.command is None:
                try:
                    info = soundfile.info(recording.path)
                    headers[recording.path] = info.frames, info.samplerate, info.channels
                except (soundfile.SoundFileError, OSError):
                    pass
        header = headers[recording.path]
        length = header[0] / max(header[1], 1) if header else 0.0
        if header:
            forms[_form(*header[1:])] += 1
        if not 0 < length < 1e6:
            length = len(recording.text) / 14
        end = length if recording.end is None else recording.end
        seconds[recording.id] = max(end - recording.start, 0.0)
    return Sounds(seconds, forms)


def _form(rate: int, channels: int) -> str:
    return f"{rate} Hz, {channels} channel{'s' * (channels > 1)}"
