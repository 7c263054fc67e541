"""The training loop: ESPnet's semantics, and exact resume after every kind of interruption."""

import dataclasses
import errno
import itertools
import math
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from geomix.errors import UserError
from geomix.settings.base import extra_of
from geomix.settings.speech import TrainerKeys
from geomix.tensors import load_state
from geomix.training.averaging import Selection
from geomix.training.checkpoints import Identity
from geomix.training.options import TrainingSettings
from geomix.training.prefetch import prefetch
from geomix.training.progress import LOG, read_log
from geomix.training.schedules import warmup_rate
from geomix.training.seeding import seed_all
from tests.training.toy import SETTINGS, Model, Task, terminate_at, trainer


def kept(folder) -> dict[str, bytes]:
    """The weights a run leaves, by file name."""
    return {path.name: path.read_bytes() for path in folder.glob("epoch-*.safetensors")}


def steps(folder) -> list[tuple]:
    """What the log says of each update that does not depend on the clock."""
    keys = ("kind", "epoch", "update", "loss", "lr", "grad_norm", "skipped", "train_loss", "dev_loss")
    return [tuple(line.get(key) for key in keys) for line in read_log(folder / LOG)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    summary = trainer(folder).run()
    return kept(folder), steps(folder), summary


# -- semantics


def test_updates_are_those_of_a_plain_loop(undisturbed, tmp_path):
    """Loss / accumulation, an update after every third batch of an epoch, the tenth's gradient carried over, clipping
    at 5.
    """
    task, model = Task(), Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, weight_decay=1e-6, fused=True)
    update = 0
    for epoch in (1, 2, 3):
        for index in range(10):
            seed_all(0, "batch", epoch, index)
            (model(**task.make(epoch, index).inputs)["loss"] / 3).backward()
            if index % 3 == 2:
                update += 1
                torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.param_groups[0]["lr"] = warmup_rate(update, 0.01, 4)
                optimizer.step()
                optimizer.zero_grad()
    run = trainer(tmp_path)
    summary = run.run()
    assert summary.updates == update == 9
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, run.model.state_dict()[name]), name


def test_same_seed_same_weights_and_another_seed_others(undisturbed, tmp_path):
    trainer(tmp_path / "same").run()
    trainer(tmp_path / "other", seed=1).run()
    assert kept(tmp_path / "same") == undisturbed[0]
    assert not set(kept(tmp_path / "other").values()) & set(undisturbed[0].values())


def test_the_best_epochs_are_kept_and_listed(undisturbed):
    weights, _, summary = undisturbed
    assert len(summary.best) == 2
    assert set(weights) == {f"epoch-{epoch}.safetensors" for epoch in summary.best}
    assert summary.scores[summary.best[0]] == min(summary.scores.values())


def test_a_step_that_is_not_finite_is_skipped_and_the_schedule_waits(tmp_path):
    def spoil(epoch, index, inputs):
        if (epoch, index) == (1, 4):  # in the second update
            inputs["y"][0] = math.inf

    summary = trainer(tmp_path, Task(spoil=spoil)).run()
    lines = [line for line in read_log(tmp_path / LOG) if line["kind"] == "step"]
    assert summary.skipped == 1
    assert [line["skipped"] for line in lines[:4]] == [0, 1, 1, 1]
    assert lines[1]["grad_norm"] is None
    assert [line["lr"] for line in lines[:3]] == [warmup_rate(k, 0.01, 4) for k in (1, 1, 2)]
    assert all(torch.isfinite(t).all() for t in Model().state_dict().values())


def test_max_updates_ends_the_run(tmp_path):
    summary = trainer(tmp_path, max_updates=4).run()
    assert (summary.updates, summary.epochs) == (4, 2)
    assert set(summary.scores) == {1, 2}


def test_log_has_what_a_person_wants_to_know(undisturbed, tmp_path, capsys):
    trainer(tmp_path).run()
    step, epoch = (
        next(line for line in read_log(tmp_path / LOG) if line["kind"] == kind) for kind in ("step", "epoch")
    )
    wanted = {"epoch", "update", "loss", "lr", "grad_norm", "skipped", "items_per_s", "mfu", "time_left_s"}
    assert wanted <= set(step)
    assert {"epoch", "update", "train_loss", "dev_loss", "seconds", "data_wait"} <= set(epoch)
    said = capsys.readouterr().err
    assert "epoch 1/3 update 1 loss" in said and "MFU" in said and "left" in said


def test_settings_are_checked_by_name():
    with pytest.raises(UserError, match=r"training\.epoch is not a setting"):
        TrainingSettings.from_dict({**SETTINGS, "epoch": 3})
    with pytest.raises(UserError, match=r"training\.warmup is not given: a training takes resolved settings"):
        TrainingSettings.from_dict({key: value for key, value in SETTINGS.items() if key != "warmup"})


def test_the_loop_reads_all_that_decides_the_weights_and_nothing_else():
    """The settings' types have the keys and defaults; a key that reaches training must be one of the loop's."""
    that_train = {
        name: field for name, field in TrainerKeys.model_fields.items() if "train" in extra_of(field).get("reach", ())
    }
    fields = dataclasses.fields(TrainingSettings)
    assert {field.name for field in fields} == set(that_train)
    assert all(field.default is dataclasses.MISSING for field in fields)


# -- interruptions


@pytest.mark.parametrize(("epoch", "batch"), [*itertools.product((1, 2, 3), (0, 1, 4, 5, 8, 9))])
def test_stopped_at_any_batch_it_resumes_to_the_same_bits(undisturbed, tmp_path, epoch, batch):
    """SIGTERM while batch (epoch, batch) is made: between batches of an accumulation, at its end, at the epoch's
    end.
    """
    with pytest.raises(UserError, match=r"toy: stopped by SIGTERM in epoch \d.*run again to go on"):
        trainer(tmp_path, Task(spoil=terminate_at(epoch, batch))).run()
    task = Task()
    summary = trainer(tmp_path, task).run()
    assert kept(tmp_path) == undisturbed[0]
    assert steps(tmp_path) == undisturbed[1]
    assert summary.attempts == 2
    # nothing before the stop is made again: at most the batches that were made ahead
    first = min(
        task.made, default=(epoch, 10)
    )  # none at all, when the last batch was trained on before the stop was seen
    assert first >= max((epoch, max(batch - 3, 0)), (1, 0)) or first == (epoch - 1, 9)


def test_stopped_during_dev_evaluation_it_resumes_to_the_same_bits(undisturbed, tmp_path):
    class Slow(Task):
        def evaluate(self, model):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(3600)  # what is told to stop never sees the end of this
            raise AssertionError("the stop must not wait for the evaluation")

    with pytest.raises(UserError, match="stopped by SIGTERM in epoch 1"):
        trainer(tmp_path, Slow()).run()
    task = Task()
    trainer(tmp_path, task).run()
    assert min(task.made) == (2, 0)
    assert kept(tmp_path) == undisturbed[0]


def _child(folder):
    # a save after every batch, so that kills fall into saves too; slow batches, so that no kill comes too late
    task = Task(spoil=lambda *_: time.sleep(0.05))
    (folder / "begun").touch()
    trainer(folder, task, save_minutes=1e-9).run()
    (folder / "finished").touch()


def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path):
    """SIGKILL, which nothing can catch, at twelve random moments, saves among them."""
    # forked from a process that has imported everything and has no threads: a fork of this one may hang in a lock, and
    # carries what earlier tests left in it
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])

    def start(folder):
        folder.mkdir(exist_ok=True)
        (folder / "begun").unlink(missing_ok=True)
        process = context.Process(target=_child, args=(folder,))
        process.start()
        while not (folder / "begun").exists() and process.is_alive():
            time.sleep(0.002)
        return process

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    start(whole).join()
    moments, kills = random.Random(0), 0
    while not (broken / "finished").exists():
        process = start(broken)
        process.join(moments.uniform(0.02, 0.25) if kills < 12 else 3600)
        if process.is_alive():
            process.kill()
            process.join()
            kills += 1
    assert kills >= 5
    assert len(kept(whole)) == 2 and kept(broken) == kept(whole)
    assert steps(broken) == steps(whole)


def test_a_damaged_checkpoint_costs_one_interval(undisturbed, tmp_path, capsys):
    with pytest.raises(UserError):
        trainer(tmp_path, Task(spoil=terminate_at(2, 5))).run()
    last = tmp_path / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-1])
    trainer(tmp_path).run()
    assert "last.ckpt was damaged: going on from previous.ckpt" in capsys.readouterr().err
    assert kept(tmp_path) == undisturbed[0]


def test_a_finished_run_is_not_run_again(undisturbed, tmp_path):
    trainer(tmp_path).run()
    task = Task()
    summary = trainer(tmp_path, task).run()
    assert task.made == []
    assert summary.scores == undisturbed[2].scores and summary.attempts == 1


def test_a_folder_of_other_settings_is_refused(tmp_path):
    trainer(tmp_path, max_updates=1).run()
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != "lock"}
    with pytest.raises(UserError, match=r"training\.learning_rate is 0\.01 there, 0\.02 here"):
        trainer(tmp_path, identity=Identity("other", {"seed": 0, "training": {"learning_rate": 0.02}})).run()
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != "lock"} == before


def test_a_finished_run_keeps_the_weights_that_its_own_selection_kept(undisturbed, tmp_path):
    trainer(tmp_path).run()
    for keep in (1, 3):
        summary = trainer(tmp_path, selection=Selection(keep, "dev_loss")).run()
        assert len(summary.best) == keep and kept(tmp_path) == undisturbed[0]


def test_weights_that_modules_share_are_saved_once_and_loaded_tied(tmp_path):
    def tied(seed=0):
        run = trainer(tmp_path, seed=seed)
        run.model.layers.append(nn.Linear(1, 1))
        run.model.layers.append(run.model.layers[-1])
        return run

    first = tied()
    first.run()
    (path, *_) = tmp_path.glob("epoch-*.safetensors")
    assert sum(name.startswith("layers.") and name.endswith("6.weight") for name in load_file(path)) == 0
    model = tied(1).model
    load_state(model, load_file(path))
    assert model.layers[5].weight is model.layers[6].weight
    assert torch.equal(model.layers[6].weight, load_file(path)["layers.5.weight"])


def test_a_full_disk_under_safetensors_is_the_same_sentence(tmp_path, monkeypatch):
    """safetensors' own writer raises a class of its own; the bytes go through our file, whose error is the system's."""
    write = Path.write_bytes

    def full(path, content):
        if "safetensors" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        UserError, match=r"epoch-1.safetensors: the disk is full; the previous file is kept: free some space"
    ):
        trainer(tmp_path).run()
    assert not list(tmp_path.glob("epoch-*"))
    monkeypatch.undo()
    trainer(tmp_path).run()


# -- the largest batch first, and detectors


def test_the_largest_batch_comes_first_and_changes_nothing(undisturbed, tmp_path, monkeypatch):
    """The other tests compare with a plain loop that never saw it; here: memory that does not suffice ends in a
    sentence.
    """

    def forward(self, x, y):
        if len(y) == 64:
            raise torch.OutOfMemoryError("CUDA out of memory")
        raise AssertionError("the largest batch must come first")

    monkeypatch.setattr(Model, "forward", forward)
    with pytest.raises(UserError, match=r"the largest batch \(64 items\) does not fit .*: lower batch_size"):
        trainer(tmp_path).run()


def test_a_run_of_blanks_only_is_stopped_and_stays_stopped(tmp_path):
    blanks = {"blank_share": 1.0}
    with pytest.raises(UserError, match=r"toy emits only blanks on dev .* after 6 updates"):
        trainer(tmp_path, Task(metrics=blanks), detect_after=6).run()
    task = Task(metrics=blanks)
    with pytest.raises(UserError, match="emits only blanks"):
        trainer(tmp_path, task, detect_after=6).run()
    assert task.made == []  # judged again from its state, not trained again
    trainer(tmp_path / "off", Task(metrics=blanks), detect_after=None).run()


def test_a_run_at_the_unigram_floor_is_stopped(tmp_path):
    task = Task(metrics={"dev_loss": 7.19})
    task.floor = 7.19
    with pytest.raises(UserError, match=r"sits at the unigram floor \(dev loss 7\.190"):
        trainer(tmp_path, task, detect_after=3).run()
    task = Task(metrics={"dev_loss": 6.5})
    task.floor = 7.19
    trainer(tmp_path / "learns", task, detect_after=3).run()


# -- batches made ahead


def test_prefetch_keeps_the_order_and_passes_errors_on():
    class Batches:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            if index == 4:
                raise ValueError("batch 4")
            return index

    seen = []
    with pytest.raises(ValueError, match="batch 4"):
        for batch, waited in prefetch(Batches(), start=1):
            seen.append(batch)
            assert waited >= 0
    assert seen == [1, 2, 3]
