"""ESPnet's entry points on tone bursts: every arm trains an epoch and is decoded; a killed training goes on where it was."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from geomix.errors import UserError
from geomix.espnet_track import launch, run
from geomix.espnet_track.data import write_training_shapes
from geomix.espnet_track.settings import training_config
from geomix.files import read_json
from geomix.mixers.own.source import find
from geomix.settings import settings_hash
from geomix.speech.decoding import decode_set
from geomix.speech.scoring import read_text
from geomix.training.averaging import Selection
from geomix.training.progress import read_log
from geomix.training.record import About, RunRecord
from geomix.training.store import state_folder
from tests.espnet_track.conftest import ARMS

pytestmark = pytest.mark.espnet

PUBLISHED = Path(__file__).resolve().parents[2] / "results/published"


def about(arm):
    return About("smoke", arm, "smoke")


ALL = Selection(10, "dev_cer")


def train(prepared, arm, root, selection=ALL, **training):
    settings = prepared.settings(arm, **training)
    out = root / "out" / arm
    features = prepared.root / "features/dev-sp1.0.f32"
    places = {"state_root": root / "state", "out": out, "dev_features": features}
    launch.train(settings, prepared.data, about=about(arm), selection=selection, **places)
    return settings, out


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_trains_and_is_decoded_in_both_codes(stats, in_process, tmp_path, arm):
    settings, out = train(stats, arm, tmp_path, epochs=1)
    record = read_json(out / "record.json")
    # the keys of records that are published, whose readers stay
    assert set(record) == set(read_json(PUBLISHED / "an4/espnet/grassmann/seed0/record.json"))
    RunRecord.read(out / "record.json")
    assert record["settings"] == settings
    assert settings_hash(settings, record["data"]["hashes"]) == record["settings_hash"]
    assert (record["track"], record["arm"], record["epochs"], record["attempts"]) == ("espnet", arm, 1, 1)
    assert record["updates"] == 6 and record["skipped_updates"] == 0  # 12 batches, accumulation 2
    assert record["data"]["speed_histogram"] == {"1.0": 48, "1.1": 48}
    assert record["packages"]["espnet"] == "202611" and record["mfu"] > 0
    lines = [line for line in read_log(out / "log.jsonl") if line["kind"] == "epoch"]
    assert [line["epoch"] for line in lines] == [1] and math.isfinite(lines[0]["train_loss"])
    diagnostics = read_json(out / "diagnostics.json")
    assert len(diagnostics["start"]) == len(diagnostics["end"]) == (2 if arm in ("grassmann", "symmetric") else 0)

    launch.average(out / "epochs.json", stats.data.tokenizer, out, ALL)
    prefix, argmax = out / "prefix/text", out / "argmax/text"
    launch.decode(out, {"test": stats.root / "espnet/test"}, {"test": prefix}, {"test": argmax})
    assert len(read_text(prefix)) == 18
    # our decoder, our features and the converted weights give what ESPnet's code gives
    decode_set(out, stats.root / "manifest/test.tsv", [stats.root / "features/test-sp1.0.f32"], out / "hyp/test/text")
    assert read_text(out / "hyp/test/text") == read_text(argmax)


MIXER = """
from torch import nn


class Mean(nn.Module):
    def __init__(self, width, hidden, *, block=0):
        super().__init__()
        self.down, self.up = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x, frames):
        real = frames.mask.unsqueeze(-1)
        return self.up(self.down((x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True))).expand_as(x)
"""


def test_a_mixer_of_a_users_own_trains_and_goes_with_the_model(stats, in_process, tmp_path, monkeypatch):
    """Both codes decode with the copy beside the model, wherever the user's file has gone."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MIXER)
    stats.config["arms"]["mine"] = {
        "mixer": "mine.py:Mean",
        "hidden": 8,
        "mixer_source": find({"mixer": "mine.py:Mean"}).hash,
    }
    _, out = train(stats, "mine", tmp_path, epochs=1)
    assert (
        read_json(out / "record.json")["mixer"]["mixer"] == "mine.py:Mean" and read_json(out / "record.json")["mfu"] > 0
    )
    Path("mine.py").unlink()
    launch.average(out / "epochs.json", stats.data.tokenizer, out, ALL)
    assert (out / "mixer_source.py").read_text() == MIXER
    Path("state").rename("elsewhere")
    launch.decode(
        out, {"test": stats.root / "espnet/test"}, {"test": out / "prefix/text"}, {"test": out / "argmax/text"}
    )
    decode_set(out, stats.root / "manifest/test.tsv", [stats.root / "features/test-sp1.0.f32"], out / "hyp/test/text")
    assert read_text(out / "hyp/test/text") == read_text(out / "argmax/text")


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

    state = state_folder(tmp_path / "killed/state", settings, stats.data.hashes)
    shapes, _ = write_training_shapes(stats.data, 4, state / "shapes")
    config = training_config(settings, stats.data, state, shapes, ALL, gpu=False, batches=12, log_every=50)
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"step": "train", "config": config}))
    process = subprocess.Popen(
        [sys.executable, "-m", run.__name__, str(request), str(tmp_path / "answer.json")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    deadline = time.monotonic() + 3600
    while not (state / "checkpoint.pth").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert (state / "checkpoint.pth").exists() and not (tmp_path / "answer.json").exists()

    _, resumed = train(stats, "grassmann", tmp_path / "killed", **training)
    for out in (whole, resumed):
        launch.average(out / "epochs.json", stats.data.tokenizer, out, ALL)
    a, b = load_file(whole / "model.safetensors"), load_file(resumed / "model.safetensors")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert read_json(whole / "epochs.json")["epochs"] == read_json(resumed / "epochs.json")["epochs"]


def averaged(prepared, out, selection):
    averaging = launch.average(out / "epochs.json", prepared.data.tokenizer, out, selection)
    return [entry["epoch"] for entry in averaging["epochs"]], load_file(out / "model.safetensors")


def test_more_epochs_go_on_from_a_copy_to_the_same_weights(stats, in_process, tmp_path, capsys):
    _, whole = train(stats, "attention", tmp_path / "whole", epochs=3)
    _, short = train(stats, "attention", tmp_path / "more", epochs=2)
    before = {path: path.read_bytes() for path in Path(read_json(short / "epochs.json")["state"]).glob("*.pth")}
    _, more = train(stats, "attention", tmp_path / "more", epochs=3)
    assert "espnet/attention/seed0: goes on from a copy of the 2 epochs in" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before
    assert read_json(more / "epochs.json")["epochs"] == read_json(whole / "epochs.json")["epochs"]
    assert read_json(more / "record.json")["updates"] == read_json(whole / "record.json")["updates"] == 18
    states = [Path(read_json(out / "epochs.json")["state"]) for out in (whole, more)]
    for name in ("checkpoint.pth", "1epoch.pth", "3epoch.pth"):
        a, b = (torch.load(state / name, weights_only=True) for state in states)
        a, b = (x.get("model", x) for x in (a, b))
        assert all(torch.equal(a[key], b[key]) for key in a), name
    (_, a), (_, b) = averaged(stats, whole, ALL), averaged(stats, more, ALL)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_another_selection_averages_again_and_never_trains(stats, in_process, tmp_path, capsys):
    _, out = train(stats, "no_mixer", tmp_path, Selection(3, "dev_cer"), epochs=5)
    metrics = {int(epoch): values for epoch, values in read_json(out / "epochs.json")["epochs"].items()}
    state = Path(read_json(out / "epochs.json")["state"])
    assert len(averaged(stats, out, Selection(3, "dev_cer"))[0]) == 3
    two = Selection(2, "dev_cer")
    epochs, weights = averaged(stats, out, two)
    assert epochs == two.best(metrics)
    kept = [torch.load(state / f"{epoch}epoch.pth", weights_only=True)["ctc.ctc_lo.weight"] for epoch in epochs]
    assert torch.equal(weights["ctc.weight"], (kept[0] + kept[1]) / 2)
    # ESPnet keeps the last epoch beside the best three: one at least of five is gone
    with pytest.raises(
        UserError, match=r"of the 5 best epochs by dev_cer, the weights of .* no longer kept: lower .* to [34]"
    ):
        averaged(stats, out, Selection(5, "dev_cer"))
    # the finished training is restored, whatever is selected, and what it kept stays
    before = sorted(path.name for path in state.glob("*epoch.pth"))
    capsys.readouterr()
    train(stats, "no_mixer", tmp_path, Selection(5, "dev_cer"), epochs=5)
    assert "espnet/no_mixer/seed0: restored, finished on" in capsys.readouterr().err
    assert sorted(path.name for path in state.glob("*epoch.pth")) == before
    assert read_json(out / "record.json")["attempts"] == 1
    # the same after an interruption: ESPnet's average at the end lacks what the first selection did not keep
    (state / "finished.json").unlink()
    train(stats, "no_mixer", tmp_path, Selection(5, "dev_cer"), epochs=5)
    assert (state / "finished.json").exists() and read_json(out / "record.json")["updates"] == 30
