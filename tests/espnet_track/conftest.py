"""A prepared corpus of tone bursts, and the steps of ESPnet's environment called in this process: its import takes seconds."""

from __future__ import annotations

import copy
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from geomix.espnet_track import launch
from geomix.espnet_track.data import EspnetData, write_data, write_speed_copies
from geomix.settings import load, training_settings
from geomix.speech.features import FeatureStore, write_features, write_normalisation
from geomix.speech.manifest import read_manifest
from geomix.speech.tokenizer import Tokenizer, train_tokenizer
from tests.conftest import ROOT
from tests.speech.corpus_builders import prepare_corpus
from tests.training.prepared import write_summaries

ARMS = ("attention", "grassmann", "symmetric", "no_mixer")
# modules that import ESPnet: they run under .venv-espnet (`make espnet-test`)
if importlib.util.find_spec("espnet2") is None:
    collect_ignore = ["test_build.py", "test_training.py", "test_installation.py", "test_workflow.py"]


@dataclass(frozen=True)
class Prepared:
    """The smoke corpus, prepared for both tracks at two speeds, and its configuration."""

    root: Path
    config: dict[str, Any]

    @property
    def data(self) -> EspnetData:
        root, kaldi = self.root, self.root / "espnet"
        stats = kaldi / "stats/train/feats_stats.npz"
        summaries = [root / split / "split.json" for split in ("train", "dev")]
        return EspnetData(*summaries, kaldi / "train", kaldi / "dev", stats, root / "tokenizer")

    def settings(self, arm: str, seed: int = 0, **training: Any) -> dict[str, Any]:
        config = copy.deepcopy(self.config)
        config["training"].update(training)
        return training_settings(config, arm, seed, "espnet")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Prepared:
    root = tmp_path_factory.mktemp("espnet")
    config = load(ROOT / "config" / "smoke.yaml", base=ROOT / "config.yaml")
    corpus = {key: config["corpus"][key] for key in ("name", "kind", "train", "dev", "test", "seed")}
    write_summaries(prepare_corpus(corpus, root, speed_factors=(1.0, 1.1), threads=1), root)
    manifests = {split: root / f"manifest/{split}.tsv" for split in ("train", "dev", "test")}
    train_tokenizer([u.text for u in read_manifest(manifests["train"])], root / "tokenizer", kind="word")
    write_speed_copies(manifests["train"], 1.1, root / "audio")
    for split, manifest in manifests.items():
        write_data(manifest, Tokenizer.load(root / "tokenizer"), root / "espnet" / split, {1.1: root / "audio"})
        utterances = read_manifest(manifest)
        for factor in {u.speed for u in utterances}:
            some = [u for u in utterances if u.speed == factor]
            write_features(some, root / f"features/{split}-sp{factor}", threads=1, progress=False)
    store = FeatureStore.open(*(root / f"features/train-sp{factor}" for factor in (1.0, 1.1)))
    write_normalisation(root / "normalisation.json", store)
    return Prepared(root, config)


def _here(step, request, *, threads=1, log=None, on_line=None):
    from geomix.espnet_track import run

    return json.loads(json.dumps(run.main(json.loads(json.dumps({"step": step, "threads": threads, **request})))))


@pytest.fixture
def in_process(monkeypatch):
    """Steps run in this process instead of one of their own."""
    monkeypatch.setattr(launch, "run_step", _here)


@pytest.fixture(scope="session")
def stats(prepared) -> Prepared:
    """The corpus with ESPnet's collect-stats behind it, which leaves its sums and nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "run_step", _here)
        launch.collect_stats(prepared.data, 80)
    assert list(prepared.data.stats.parent.iterdir()) == [prepared.data.stats]
    return prepared
