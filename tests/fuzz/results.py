"""Targets of what geomix itself has written, damaged: states, checkpoints, models, hypotheses, results."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import soundfile

from geomix.cli import main
from geomix.errors import UserError
from tests.fuzz.damage import any_file_step, text_step
from tests.fuzz.harness import Fault, all_of

WORDS = "ONE TWO THREE FOUR हाँ DON'T É".split()


def command(*arguments: object) -> str:
    """Output of `geomix ARGUMENTS`; status 1 is a `UserError` with what it said, anything but 0 and 1 a fault."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            main(list(map(str, arguments)))
        except SystemExit as ended:
            lines = [line for line in said.getvalue().splitlines() if line.startswith("geomix: ")]
            if ended.code not in (0, 1) or (ended.code == 1 and not lines):
                raise Fault(f"geomix {arguments[0]} ended with {ended.code}: {said.getvalue()[-2000:]}") from None
            if ended.code == 1:
                raise UserError(lines[-1].removeprefix("geomix: ")) from None
    return out.getvalue()


class Scores:
    """A reference, two hypothesis files and their speakers: `geomix score` and `geomix compare`."""

    name = "scores"

    def make(self, folder: Path, draw: random.Random) -> SimpleNamespace:
        ids = [f"s{number % 3}-{number}" for number in range(draw.choice((3, 9)))]
        say = lambda: {i: " ".join(draw.choices(WORDS, k=draw.randint(1, 6))) for i in ids}
        for name in ("ref", "a", "b"):
            (folder / name).write_text("".join(f"{i} {text}\n" for i, text in say().items()), encoding="utf-8")
        (folder / "utt2spk").write_text("".join(f"{i} {i[:2]}\n" for i in ids))
        rows = "".join(f"{i}\t{i[:2]}\t{i}.wav\t16000\t1.0\tONE TWO\n" for i in ids)
        (folder / "ref.tsv").write_text(f"id\tspeaker\tpath\tsamples\tspeed\ttext\n{rows}")
        return SimpleNamespace(reference=draw.choice(("ref", "ref.tsv")))

    def damage(self, folder: Path, made: SimpleNamespace, draw: random.Random) -> None:
        if draw.random() < 0.5:
            any_file_step(folder, draw)
        else:  # every file at once, so that they still belong together
            step = draw.getrandbits(32)
            for path in sorted(folder.iterdir()):
                if path.is_file() and not path.is_symlink() and path.suffix != ".tsv":
                    with contextlib.suppress(UnicodeDecodeError):
                        path.write_text(text_step(path.read_text("utf-8"), random.Random(step)), "utf-8", newline="")

    def read(self, folder: Path, made: SimpleNamespace) -> None:
        os.chdir(folder)
        speakers = ("--utt2spk", "utt2spk")

        def score() -> None:
            command("score", made.reference, "a", *speakers, "--json", "score.json")
            _whole_json(folder / "score.json")

        def compare() -> None:
            command("compare", made.reference, "a", "b", *speakers, "--resamples", 100, "--json", "comparison.json")
            _whole_json(folder / "comparison.json")

        all_of(score, compare, lambda: command("score", made.reference, "a"))


def _whole_json(path: Path) -> None:
    def refuse(name: str) -> None:
        raise Fault(f"{path} holds {name}, which is no JSON")

    json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@cache
def trained() -> Path:
    """A folder with a tiny corpus prepared, a training of two epochs in its store, and its model; made once a process."""
    import tempfile

    from geomix.speech.corpora import check_corpus, prepare_split
    from geomix.speech.features import FeatureStore, write_features, write_normalisation
    from geomix.speech.manifest import read_manifest
    from geomix.speech.tokenizer import train_tokenizer
    from tests.fuzz.data import Corpus

    folder = Path(tempfile.mkdtemp(prefix="geomix-fuzz-trained-"))
    made = Corpus("manifest").make(folder, random.Random(0))
    folders = {split: made.out / f"{split}-0" for split in ("train", "dev", "test")}
    for split, out in folders.items():
        prepare_split(made.corpus, split, out, threads=1)
        utterances = [u for u in read_manifest(out / f"manifest/{split}.tsv") if u.speed == 1.0]
        write_features(utterances, out / "features", threads=1, progress=False)
    check_corpus(made.corpus, folders, made.out / "corpus.json")
    train_tokenizer(
        [u.text for u in read_manifest(made.out / "train-0/manifest/train.tsv")], made.out / "tokenizer", "char"
    )
    write_normalisation(made.out / "normalisation.json", FeatureStore.open(made.out / "train-0/features"))
    lines = (made.out / "train-0/manifest/train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (made.out / "train.tsv").write_text("".join(line for line in lines if not line.startswith("sp")), encoding="utf-8")
    here = os.getcwd()
    os.chdir(folder)
    try:
        train()
    finally:
        os.chdir(here)
    return folder


OUT = Path("results/fuzz/own/no_mixer/seed0")


def settings() -> dict[str, Any]:
    """Settings of the smallest training of the own track: those of config/smoke.yaml without a mixer, smaller still."""
    from geomix.settings import load, training_settings
    from tests.conftest import ROOT

    found = training_settings(load(ROOT / "config/smoke.yaml", base=ROOT / "config.yaml"), "no_mixer", 0, "own")
    found["model"] |= {"width": 8, "blocks": 1, "ff_dim": 8, "kernel": 3}
    found["training"] |= {"epochs": 2, "batch_bins": 100_000, "accumulation": 1, "warmup": 4}
    return found


def train() -> None:
    """Train, average, decode and score in the current folder, as the rules do; what is finished is restored."""
    from geomix.speech.decoding import decode_set
    from geomix.speech.manifest import read_manifest
    from geomix.speech.prepared import PreparedData
    from geomix.speech.scoring import read_text, score_texts, write_score
    from geomix.speech.training import average_arm, train_arm
    from geomix.training.averaging import Selection
    from geomix.training.options import TrainerOptions
    from geomix.training.record import About

    data, selection = Path("data"), Selection(2, "dev_cer")
    prepared = PreparedData(
        data / "train-0/split.json", data / "dev-0/split.json", data / "train.tsv", [data / "train-0/features.f32"],
        [data / "dev-0/manifest/dev.tsv"], [data / "dev-0/features.f32"], data / "normalisation.json", data / "tokenizer",
    )  # fmt: skip
    options = TrainerOptions(selection, None, 10.0, 50)
    train_arm(settings(), prepared, about=About("fuzz", "no_mixer", "fuzz"), options=options, out=OUT, device="cpu")
    average_arm(OUT / "epochs.json", data / "tokenizer", OUT, selection)
    test = data / "test-0/manifest/test.tsv"
    decode_set(OUT, test, [data / "test-0/features.f32"], OUT / "hyp/test/text", device="cpu")
    texts = {u.id: u.text for u in read_manifest(test)}
    score = score_texts(texts, read_text(OUT / "hyp/test/text"), dict.fromkeys(texts, "s"), set="test")
    write_score(score, OUT / "score/test.json", OUT / "score/test.tsv")


class State:
    """The store, the prepared data and the results of a finished training: it is restored, averaged, decoded, told of, forgotten."""

    name = "state"
    damaged = ("state/**/*", "state/**/*.json", "results/**/*", "data/**/*.json")

    def make(self, folder: Path, draw: random.Random) -> None:
        for name in ("state", "results", "data"):
            shutil.copytree(trained() / name, folder / name)

    def damage(self, folder: Path, made: None, draw: random.Random) -> None:
        any_file_step(folder, draw, draw.choice(self.damaged))

    def read(self, folder: Path, made: None) -> None:
        os.chdir(folder)
        all_of(
            lambda: command("status", "results/fuzz"),
            train,
            lambda: command("status", "results/fuzz"),
            lambda: command("forget", "fuzz", "no_mixer"),
        )


class Model:
    """A model's folder: `geomix transcribe`."""

    name = "model"

    def make(self, folder: Path, draw: random.Random) -> None:
        for name in ("model.safetensors", "model.yaml", "tokenizer.model", "tokens.txt"):
            shutil.copy(trained() / OUT / name, folder / name)
        soundfile.write(folder / "a.wav", 0.1 * np.random.default_rng(0).standard_normal(20_000), 16_000)

    def damage(self, folder: Path, made: None, draw: random.Random) -> None:
        any_file_step(folder, draw)

    def read(self, folder: Path, made: None) -> None:
        os.chdir(folder)
        text = command("transcribe", ".", "a.wav", "--device", "cpu")
        if text.count("\n") != 1 or text.count("\t") != 1:
            raise Fault(f"not a line a file: {text!r}")


@cache
def stopped() -> Path:
    """The state folder of a toy training that was stopped in its second epoch; made once a process."""
    import tempfile

    from tests.training.toy import Task, terminate_at, trainer

    folder = Path(tempfile.mkdtemp(prefix="geomix-fuzz-stopped-"))
    with contextlib.suppress(UserError):
        trainer(folder, Task(spoil=terminate_at(2, 5))).run()
    return folder


class Checkpoint:
    """A training that was stopped goes on, or says what is damaged."""

    name = "checkpoint"

    def make(self, folder: Path, draw: random.Random) -> Path:
        return Path(shutil.copytree(stopped(), folder / "state"))

    def damage(self, folder: Path, made: Path, draw: random.Random) -> None:
        any_file_step(made, draw)

    def read(self, folder: Path, made: Path) -> None:
        from tests.training.toy import trainer

        summary = trainer(made).run()
        if (summary.epochs, summary.updates) != (3, 9) or not all(map(np.isfinite, summary.scores.values())):
            raise Fault(f"{summary.epochs} epochs, {summary.updates} updates, scores {summary.scores}")


def targets() -> dict[str, Any]:
    """Target's name -> what makes it."""
    return {target.name: target for target in (Scores, State, Model, Checkpoint)}
