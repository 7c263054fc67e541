"""Targets of what preparation reads: recordings, corpora, and what preparation itself has written."""

from __future__ import annotations

import os
import random
import struct
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import soundfile

from geomix import files
from geomix.errors import UserError
from geomix.speech.audio import inspect_audio, read_audio
from geomix.speech.corpora import check_corpus, prepare_split, stale_sources
from geomix.speech.decoding import write_hypotheses
from geomix.speech.manifest import read_manifest
from geomix.speech.scoring import read_text, score_texts
from geomix.speech.tokenizer import Tokenizer, train_tokenizer
from tests.fuzz.damage import any_file_step, bytes_step, file_step
from tests.fuzz.harness import Fault, all_of

# format, subtype, ending
FORMS = (
    ("WAV", "PCM_16", "wav"), ("WAV", "PCM_U8", "wav"), ("WAV", "PCM_24", "wav"), ("WAV", "PCM_32", "wav"),
    ("WAV", "FLOAT", "wav"), ("WAV", "DOUBLE", "wav"), ("WAV", "ULAW", "wav"), ("WAV", "IMA_ADPCM", "wav"), ("WAVEX", "PCM_16", "wav"),
    ("RF64", "PCM_16", "wav"), ("AIFF", "PCM_16", "aiff"), ("AIFF", "FLOAT", "aiff"), ("AU", "PCM_16", "au"), ("CAF", "PCM_16", "caf"),
    ("CAF", "ALAC_16", "caf"), ("W64", "PCM_16", "w64"), ("NIST", "PCM_16", "sph"), ("FLAC", "PCM_16", "flac"), ("FLAC", "PCM_24", "flac"),
    ("OGG", "VORBIS", "ogg"), ("OGG", "OPUS", "opus"), ("MP3", "MPEG_LAYER_III", "mp3"),
)  # fmt: skip


SAMPLES = 24_000  # of the utterances of a corpus: enough frames for their letters


@cache
def recording(form: int, samples: int) -> bytes:
    """A file of noise in one of `FORMS`."""
    import io

    kind, subtype, _ = FORMS[form]
    buffer = io.BytesIO()
    noise = 0.1 * np.random.default_rng(form).standard_normal(samples)
    soundfile.write(buffer, noise, 16_000, format=kind, subtype=subtype)
    return buffer.getvalue()


class Audio:
    """A recording, its header damaged more often than its samples."""

    name = "audio"

    def make(self, folder: Path, draw: random.Random) -> Path:
        form = draw.randrange(len(FORMS))
        path = folder / f"recording.{FORMS[form][2]}"
        path.write_bytes(recording(form, draw.choice((300, 2000, 20_000))))
        return path

    def damage(self, folder: Path, made: Path, draw: random.Random) -> None:
        if draw.random() < 0.05:
            file_step(made, draw)
        elif made.is_file() and not made.is_symlink():
            made.write_bytes(bytes_step(made.read_bytes(), draw, head=draw.choice((16, 64, 300))))

    def read(self, folder: Path, made: Path) -> None:
        _check_recording(made)


class Header:
    """A WAV header of random fields before random samples: what a program may write that knows the form and little else."""

    name = "header"

    def make(self, folder: Path, draw: random.Random) -> Path:
        path = folder / "recording.wav"
        path.write_bytes(recording(0, 2000))
        return path

    def damage(self, folder: Path, made: Path, draw: random.Random) -> None:
        sizes = (0, 1, 2, 8, 16, 18, 40, 100, 3999, 4000, 4001, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
        chunks = []
        for _ in range(draw.randrange(1, 6)):
            kind = draw.choice((b"fmt ", b"data", b"LIST", b"fact", b"ds64", b"PAD ", b"\0\0\0\0", draw.randbytes(4)))
            body = draw.randbytes(draw.choice((0, 1, 16, 28, 40, 4000)))
            if kind == b"fmt ":
                code, bits = draw.choice((0, 1, 3, 6, 7, 17, 0xFFFE, 65535)), draw.choice((0, 1, 8, 12, 16, 24, 32, 64))
                channels, rate = draw.choice((0, 1, 1, 1, 2, 65535)), draw.choice((0, 8000, 16_000, 16_000, 0xFFFFFFFF))
                body = struct.pack("<HHIIHH", code, channels, rate, rate * 2 % 2**32, bits // 8, bits)
                body += draw.choice((b"", bytes(2), bytes(24)))
            size = len(body) if draw.random() < 0.7 else draw.choice(sizes)
            chunks.append(kind + struct.pack("<I", size) + body)
        form = draw.choice((b"RIFF", b"RIFF", b"RIFX", b"RF64", b"FORM"))
        made.write_bytes(form + struct.pack("<I", draw.choice(sizes)) + b"WAVE" + b"".join(chunks))

    def read(self, folder: Path, made: Path) -> None:
        _check_recording(made)


def _check_recording(path: Path) -> None:
    """What is accepted is finite and is counted as it is read; what is refused is refused by its name, both times."""
    try:
        count, digest = inspect_audio(path)
    except UserError as error:
        if path.name not in str(error):
            raise Fault(f"the sentence does not name the file: {error}") from error
        raise
    samples = read_audio(path)
    if samples.dtype != np.float32 or samples.shape != (count,) or not np.isfinite(samples).all() or len(digest) != 64:
        raise Fault(f"{count} samples were counted and {samples.shape} {samples.dtype} read")


class Corpus:
    """A corpus of a few utterances in one of the forms, damaged in any of its files, prepared and used."""

    def __init__(self, kind: str):
        self.name = self.kind = kind

    def make(self, folder: Path, draw: random.Random) -> SimpleNamespace:
        root, texts = folder / "corpus", {}
        for split in ("train", "dev", "test"):
            for number in range(draw.choice((2, 3))):
                words = draw.sample("YES NO LEFT RIGHT हाँ नहीं DON'T ÉTÉ".split(), draw.randint(1, 4))
                texts.setdefault(split, {})[f"{split[0]}{number % 2}-{number}-{split}"] = " ".join(words)
        for split, lines in texts.items():
            getattr(self, f"_write_{self.kind}")(root, split, lines)
        corpus = {
            "name": "fuzz", "kind": self.kind, "path": str(root), "audio_root": None, "train": ["train"], "dev": ["dev"],
            "test": ["test"], "speed_factors": [0.9, 1.0], "min_seconds": 0.1, "max_seconds": 30.0, "expected": {},
        }  # fmt: skip
        return SimpleNamespace(root=root, corpus=corpus, out=folder / "data")

    @staticmethod
    def _write_folder(root: Path, split: str, texts: dict[str, str]) -> None:
        for i, text in texts.items():
            speaker, chapter, _ = i.split("-")
            place = root / split / speaker / chapter
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i}.flac").write_bytes(recording(17, SAMPLES))
            with open(place / f"{speaker}-{chapter}.trans.txt", "a", encoding="utf-8") as file:
                file.write(f"{i} {text}\n")

    @staticmethod
    def _write_kaldi(root: Path, split: str, texts: dict[str, str]) -> None:
        place = root / split
        place.mkdir(parents=True)
        lines = {"wav.scp": lambda i: f"{i}.wav", "text": texts.get, "utt2spk": lambda i: i.partition("-")[0]}
        for name, value in lines.items():
            (place / name).write_text("".join(f"{i} {value(i)}\n" for i in texts), encoding="utf-8")
        for i in texts:
            (place / f"{i}.wav").write_bytes(recording(0, SAMPLES))

    @staticmethod
    def _write_manifest(root: Path, split: str, texts: dict[str, str]) -> None:
        root.mkdir(exist_ok=True)
        rows = "".join(f"{i}\t{i[:2]}\t{i}.wav\t{text}\n" for i, text in texts.items())
        (root / f"{split}.tsv").write_text(f"id\tspeaker\tpath\ttext\n{rows}", encoding="utf-8")
        for i in texts:
            (root / f"{i}.wav").write_bytes(recording(0, SAMPLES))

    def damage(self, folder: Path, made: SimpleNamespace, draw: random.Random) -> None:
        places = sorted(path for path in (folder / "corpus", *made.root.rglob("*")) if path.is_dir())
        if places and draw.random() < 0.1:
            place = draw.choice(places)
            other = place.with_name(draw.choice(("x y", "-", "é", "x" * 200, "sp0.9-a", ".hidden")))
            if not other.exists():
                os.rename(place, other)
        else:
            pattern = "**/*" if draw.random() < 0.3 else "**/*[!cv]"  # FLAC and WAV less often than tables
            any_file_step(made.root, draw, pattern)

    def read(self, folder: Path, made: SimpleNamespace) -> None:
        folders = {split: made.out / f"{split}-0" for split in ("train", "dev", "test")}
        for split, out in folders.items():
            try:
                prepare_split(made.corpus, split, out, threads=1)
            except UserError:
                if (out / "split.json").exists():
                    raise Fault(f"{split} was refused and left its summary") from None
                raise
        check_corpus(made.corpus, folders, made.out / "corpus.json")
        for split, out in folders.items():
            _check_prepared(made, split, out)


def _check_prepared(made: SimpleNamespace, split: str, out: Path) -> None:
    """What preparation accepts is carried by every later format: manifest, sources, tokenizer, hypotheses, scores."""
    utterances = read_manifest(out / "manifest" / f"{split}.tsv")
    if len(utterances) != files.read_json(out / "split.json")["utterances"] or stale_sources(out):
        raise Fault(f"{split}: the manifest and the summary or the sources disagree")
    texts = {u.id: u.text for u in utterances}
    train_tokenizer(texts.values(), made.out / "tokenizer", "char")
    tokenizer = Tokenizer.load(made.out / "tokenizer")
    heard = {i: tokenizer.decode(tokenizer.encode(text)) for i, text in texts.items()}
    if heard != texts:
        raise Fault(f"{split}: the tokenizer gives back {heard} of {texts}")
    write_hypotheses(made.out / "text", heard)
    score = score_texts(texts, read_text(made.out / "text"), {u.id: u.speaker for u in utterances})
    if score.words.errors or score.characters.errors:
        raise Fault(f"{split}: its own transcripts have {score.words.errors} errors")


class Prepared(Corpus):
    """What preparation has written, damaged, and read by what comes next."""

    def __init__(self):
        super().__init__("manifest")
        self.name = "prepared"

    def make(self, folder: Path, draw: random.Random) -> SimpleNamespace:
        made = super().make(folder, draw)
        made.folders = {split: made.out / f"{split}-0" for split in ("train", "dev", "test")}
        for split, out in made.folders.items():
            prepare_split(made.corpus, split, out, threads=1)
        from geomix.speech.features import FeatureStore, write_features, write_normalisation

        utterances = read_manifest(made.out / "train-0/manifest/train.tsv")
        write_features(utterances, made.out / "features/train", threads=1, progress=False)
        write_normalisation(made.out / "normalisation.json", FeatureStore.open(made.out / "features/train"))
        train_tokenizer([u.text for u in utterances], made.out / "tokenizer", "char")
        return made

    def damage(self, folder: Path, made: SimpleNamespace, draw: random.Random) -> None:
        any_file_step(made.out, draw)

    def read(self, folder: Path, made: SimpleNamespace) -> None:
        """Each reader by itself: one that refuses keeps nothing from the others."""
        from geomix.commands.status import stale_lines
        from geomix.speech.features import write_features

        manifest = made.out / "train-0/manifest/train.tsv"
        all_of(
            lambda: stale_lines(folder),
            lambda: check_corpus(made.corpus, made.folders, made.out / "corpus.json"),
            lambda: write_features(read_manifest(manifest), made.out / "again", threads=1, progress=False),
            lambda: _read_as_training(made.out),
        )


def _read_as_training(out: Path) -> None:
    import torch

    from geomix.speech.prepared import PreparedData, read_counts, read_dropped
    from geomix.speech.training import build_model, make_task
    from tests.fuzz.results import settings

    features = [out / "features/train.f32"]
    data = PreparedData(
        *(out / f"{split}-0/split.json" for split in ("train", "dev")), out / "train-0/manifest/train.tsv", features,
        [out / "train-0/manifest/train.tsv"], features, out / "normalisation.json", out / "tokenizer",
    )  # fmt: skip
    _, network = build_model(settings(), Tokenizer.load(data.tokenizer), data.normalisation)
    task = make_task(settings(), data, network.eval(), torch.device("cpu"), 1.0)
    network(**task.batches(1)[0].inputs)
    read_counts(data.train_summary), read_dropped(data.train_summary)
    metrics = task.evaluate(network)
    if data.hashes.keys() != {"train", "dev", "normalisation", "tokenizer"} or not np.isfinite(metrics["dev_loss"]):
        raise Fault(f"hashes {data.hashes}, metrics {metrics}")


def targets() -> dict[str, Any]:
    """Target's name -> what makes it."""
    found = [Audio, Header, *(lambda kind=kind: Corpus(kind) for kind in ("folder", "kaldi", "manifest")), Prepared]
    return {make().name: make for make in found}
