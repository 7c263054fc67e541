"""ESPnet's entry points on tone bursts: every arm trains an epoch and is decoded; a killed training goes on where it was."""

import json
import math
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from geomix.espnet_track import launch, run
from geomix.espnet_track.data import write_training_shapes
from geomix.espnet_track.settings import training_config
from geomix.files import read_json
from geomix.speech.scoring import read_text
from geomix.speech.training_task import decode_set, state_folder
from geomix.training.progress import read_log
from tests.espnet_track.conftest import ARMS

pytestmark = pytest.mark.espnet


def about(arm):
    return {"run": "smoke", "corpus": "smoke", "arm": arm, "gated": False, "unmatched": None}


def train(prepared, arm, root, **training):
    settings = prepared.settings(arm, **training)
    out = root / "out" / arm
    features = prepared.root / "features/dev-sp1.0.f32"
    launch.train(settings, prepared.data, about=about(arm), state_root=root / "state", out=out, dev_features=features)
    return settings, out


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_trains_and_is_decoded_in_both_codes(stats, in_process, tmp_path, arm):
    _, out = train(stats, arm, tmp_path, epochs=1)
    record = read_json(out / "record.json")
    assert (record["track"], record["arm"], record["epochs"], record["attempts"]) == ("espnet", arm, 1, 1)
    assert record["updates"] == 6 and record["skipped_updates"] == 0  # 12 batches, accumulation 2
    assert record["data"]["speed_histogram"] == {"1.0": 48, "1.1": 48}
    assert record["packages"]["espnet"] == "202611" and record["mfu"] > 0
    lines = [line for line in read_log(out / "log.jsonl") if line["kind"] == "epoch"]
    assert [line["epoch"] for line in lines] == [1] and math.isfinite(lines[0]["train_loss"])
    diagnostics = read_json(out / "diagnostics.json")
    assert len(diagnostics["start"]) == len(diagnostics["end"]) == (2 if arm in ("grassmann", "symmetric") else 0)

    launch.average(out / "epochs.json", stats.data, out)
    prefix, argmax = out / "prefix/text", out / "argmax/text"
    launch.decode(out, {"test": stats.data.folder / "test"}, {"test": prefix}, {"test": argmax})
    assert len(read_text(prefix)) == 18
    # our decoder, our features and the converted weights give what ESPnet's code gives
    decode_set(out, stats.root / "manifest/test.tsv", [stats.root / "features/test-sp1.0.f32"], out / "hyp/test/text")
    assert read_text(out / "hyp/test/text") == read_text(argmax)


def test_the_checks_of_the_tracks_hold(stats, in_process, tmp_path):
    features = [stats.root / f"features/train-sp{factor}.f32" for factor in (1.0, 1.1)]
    found = launch.agree(
        {arm: stats.settings(arm) for arm in ARMS},
        stats.data,
        train_features=features,
        dev_features=stats.root / "features/dev-sp1.0.f32",
        normalisation=stats.root / "normalisation.json",
        out=tmp_path / "agreement.json",
    )
    assert {entry["check"] for entry in found["checks"]} == {
        "parameters", "features", "normalisation", "tokenisation", "loss, fp32", "log-probabilities, float64",
        "log-probabilities, float32", "learning rate", "batches", "updates an epoch",
    }  # fmt: skip
    assert [entry for entry in found["checks"] if not entry["passed"]] == []


def test_a_killed_training_ends_with_the_same_weights(stats, in_process, tmp_path):
    """Killed without warning after its first epoch, in a process of its own; ESPnet goes on from checkpoint.pth."""
    # the second schedule of ours is not ESPnet's: its scheduler's state is resumed too
    training = {"epochs": 3, "schedule": "cosine_per_epoch"}
    settings, whole = train(stats, "grassmann", tmp_path / "whole", **training)

    state = state_folder(tmp_path / "killed/state", settings, "grassmann", stats.data)
    shapes, _ = write_training_shapes(stats.data, 4, state / "shapes")
    config = training_config(settings, stats.data, state, shapes, gpu=False, batches=12, log_every=50)
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"step": "train", "config": config}))
    process = subprocess.Popen(
        [sys.executable, "-m", run.__name__, str(request), str(tmp_path / "answer.json")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    deadline = time.monotonic() + 120
    while not (state / "checkpoint.pth").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert (state / "checkpoint.pth").exists() and not (tmp_path / "answer.json").exists()

    _, resumed = train(stats, "grassmann", tmp_path / "killed", **training)
    for out in (whole, resumed):
        launch.average(out / "epochs.json", stats.data, out)
    a, b = load_file(whole / "model.safetensors"), load_file(resumed / "model.safetensors")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert read_json(whole / "epochs.json")["kept"] == read_json(resumed / "epochs.json")["kept"]
