"""The store: who claims a training, what is restored, continued, forgotten and refused."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch

from geomix.cli import main
from geomix.errors import UserError
from geomix.files import folder_lock, read_json
from geomix.settings import trainings
from geomix.settings.base import key
from geomix.settings.speech import Training
from geomix.training import store
from geomix.training.averaging import Epochs, Selection
from geomix.training.checkpoints import LAYOUT, Identity, load_state
from geomix.training.progress import LOG, read_log
from geomix.training.record import Origin
from geomix.training.store import Request, User, forget, opened, state_folder, stored
from tests.training.toy import ROOM, Task, terminate_at, trainer

USER = User("study", "own", "pair", 0)
DATA = {"train": "1", "dev": "2"}
ORIGIN = Origin(
    commit="abc", dirty=False, device="d", cpu="c", threads=1, packages={}, device_flops={"value": 1.0}, finished="now"
)


def settings_of(epochs=3, **training):
    return {"seed": 0, "training": {"epochs": epochs, "learning_rate": 0.01, "max_updates": None, **training}}


def train(root, user=USER, selection=ROOM, task=None, schedule="warmup", **training):
    """The toy through the store, as the trainings of the studies go: (state folder, summary)."""
    settings = settings_of(**training)
    request = Request(settings, DATA, user, LAYOUT, selection, schedule)
    options = {**settings["training"], "schedule": schedule}
    options.pop("later", None)  # a key that the toy's trainer does not know
    with opened(root, request) as found:
        identity = Identity(found.folder.name, {**settings, "hashes": DATA})
        run = trainer(found.folder, task or Task(), identity=identity, selection=selection, **options)
        run.name = user.name
        summary = run.run()
        found.finish(summary.metrics, ORIGIN)
    return found.folder, summary


def content(folder):
    """What decides anything: weights kept, weights and optimiser of the last checkpoint, scores."""
    state, _ = load_state(folder, Identity(folder.name, {}))
    kept = {path.name: path.read_bytes() for path in sorted(folder.glob("epoch-*"))}
    optimizer = [entry for entry in state["optimizer"]["state"].values()]
    tensors = [*state["model"].values(), *(value for entry in optimizer for value in entry.values())]
    history = [
        [line.get(key) for key in ("kind", "epoch", "update", "loss", "lr", "dev_loss")]
        for line in read_log(folder / LOG)
    ]
    return kept, tensors, state["metrics"], history


def assert_same(a, b):
    (kept, tensors, *rest), (other_kept, other_tensors, *other_rest) = content(a), content(b)
    assert kept == other_kept and rest == other_rest
    assert len(tensors) == len(other_tensors) and all(map(torch.equal, tensors, other_tensors))


# -- claims


def test_a_training_is_found_by_its_settings_and_data_whichever_run_asks(tmp_path, capsys):
    folder, first = train(tmp_path)
    assert folder.parent == tmp_path and len(folder.name) == 12 and set(folder.name) <= set("0123456789abcdef")
    task = Task()
    same, again = train(tmp_path, User("another", "own", "renamed", 0), task=task)
    assert same == folder and task.made == [] and again.scores == first.scores
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("own/renamed/seed0: restored, finished on 20")
    assert said.endswith(
        f"in {folder}; `geomix forget another renamed` and `geomix forget study pair` remove it to train anew"
    )
    assert read_json(folder / "users.json") == [
        {"run": "another", "track": "own", "arm": "renamed", "seed": 0},
        {"run": "study", "track": "own", "arm": "pair", "seed": 0},
    ]
    assert read_json(folder / "settings.json") == {"settings": settings_of(), "data": DATA}
    (entry,) = stored(tmp_path)
    assert entry.finished and entry.settings == settings_of()
    assert state_folder(tmp_path, settings_of(), {**DATA, "dev": "3"}) != folder
    assert state_folder(tmp_path, settings_of(learning_rate=0.02), DATA) != folder


def test_one_job_a_state(tmp_path):
    folder = state_folder(tmp_path, settings_of(), DATA)
    with (
        folder_lock(folder, "training toy"),
        pytest.raises(UserError, match="is training own/pair/seed0 here: wait for it"),
    ):
        train(tmp_path)
    assert not (folder / "users.json").exists()


def test_folders_of_an_earlier_geomix_are_named_once_and_left(tmp_path, capsys):
    (tmp_path / "smoke/own/attention/seed0").mkdir(parents=True)
    (tmp_path / "lost+found").mkdir()
    train(tmp_path)
    train(tmp_path, epochs=2)
    said = capsys.readouterr().err
    assert said.count(f"{tmp_path}/smoke: states of an earlier geomix, which are not read: they may be removed") == 1
    assert (tmp_path / "smoke/own/attention").is_dir()


# -- more epochs


@pytest.mark.parametrize("schedule", ["warmup", "constant"])
def test_more_epochs_go_on_from_a_copy_to_the_same_bits(tmp_path, capsys, schedule):
    whole, _ = train(tmp_path / "whole", epochs=6, schedule=schedule)
    train(tmp_path / "more", epochs=1, schedule=schedule)
    short, _ = train(tmp_path / "more", epochs=4, schedule=schedule)  # itself from the one of 1
    before = {path.name: path.read_bytes() for path in short.iterdir() if path.name != "lock"}
    task = Task()
    more, summary = train(tmp_path / "more", epochs=6, schedule=schedule, task=task)
    assert min(task.made) == (5, 0) and summary.attempts == 3
    assert f"own/pair/seed0: goes on from a copy of the 4 epochs in {short}" in capsys.readouterr().err
    assert_same(more, whole)
    assert {path.name: path.read_bytes() for path in short.iterdir() if path.name != "lock"} == before
    assert [path.name for path in more.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schedule": "cosine_per_epoch"}, "training.schedule cosine_per_epoch depends on the number of epochs"),
        ({"max_updates": 100}, "training.max_updates ends it, not its epochs"),
        ({"lost": "last.ckpt"}, "its last.ckpt is gone"),
        ({"damaged": "last.ckpt"}, "its last.ckpt is damaged"),
        ({"selection": Selection(4, "dev_loss")}, "the weights of epoch "),
    ],
)
def test_why_a_shorter_training_is_not_continued_is_said(tmp_path, capsys, change, reason):
    options = {key: value for key, value in change.items() if key not in ("lost", "damaged", "selection")}
    short, _ = train(tmp_path, epochs=4, **options)
    if "lost" in change:
        (short / change["lost"]).unlink()
    if "damaged" in change:
        (short / change["damaged"]).write_bytes((short / change["damaged"]).read_bytes()[:-1])
    task = Task()
    folder, _ = train(tmp_path, selection=change.get("selection", ROOM), task=task, epochs=5, **options)
    assert f"own/pair/seed0: starts anew, not from the 4 epochs in {short}: {reason}" in capsys.readouterr().err
    assert min(task.made) == (1, 0) and not (folder / ".copy").exists()


@pytest.mark.parametrize("name", ["users.json", "settings.json", "finished.json"])
@pytest.mark.parametrize("content", ["", "{", "[1]", '{"settings": 1}', "\x00"])
def test_a_damaged_file_of_another_training_stops_none(tmp_path, capsys, name, content):
    """Who claims another training is of no matter; one that says nothing of itself is passed over, and named."""
    short, _ = train(tmp_path, epochs=1)
    (short / name).write_text(content)
    task = Task()
    train(tmp_path, epochs=2, task=task)
    said = capsys.readouterr().err
    assert min(task.made) == ((2, 0) if name == "users.json" else (1, 0))
    assert (f"passes over {short}: {short}/{name}" in said) == (name != "users.json")
    with pytest.raises(UserError, match=name):
        store.forget(tmp_path, "run")


class Later(Training):
    """The section of a later geomix, which has a key more."""

    later: str | None = key(None, "a key that was added later", "train", before=None)


def test_a_training_from_before_a_key_is_resumed_continued_and_restored(tmp_path, monkeypatch, capsys):
    whole, _ = train(tmp_path / "whole", epochs=4)
    with pytest.raises(UserError, match="stopped by SIGTERM in epoch 2"):
        train(tmp_path / "stopped", epochs=4, task=Task(spoil=terminate_at(2, 5)))
    short, _ = train(tmp_path / "short", epochs=2)
    monkeypatch.setattr(trainings, "Training", Later)

    task = Task()
    resumed, _ = train(tmp_path / "stopped", epochs=4, later=None, task=task)
    assert min(task.made) >= (2, 0)
    assert_same(resumed, whole)
    more, _ = train(tmp_path / "short", epochs=4, later=None)
    assert f"goes on from a copy of the 2 epochs in {short}" in capsys.readouterr().err
    assert_same(more, whole)
    same, _ = train(tmp_path / "short", epochs=2, later=None)
    assert same == short and "restored, finished on" in capsys.readouterr().err
    # at another value it is another training
    other, _ = train(tmp_path / "short", epochs=4, later="on")
    assert other not in (short, more)


def test_other_trainings_are_not_continued(tmp_path, capsys):
    train(tmp_path, epochs=2, learning_rate=0.02)
    train(tmp_path, epochs=4)
    with pytest.raises(UserError, match="stopped"):
        train(tmp_path, epochs=1, accumulation=2, task=Task(spoil=terminate_at(1, 3)))
    task = Task()
    train(tmp_path, epochs=3, task=task)
    train(tmp_path, epochs=3, accumulation=2)
    assert min(task.made) == (1, 0)
    said = capsys.readouterr().err
    assert "goes on from a copy" not in said and "starts anew" not in said


def test_a_copy_that_was_killed_is_made_again(tmp_path, monkeypatch):
    whole, _ = train(tmp_path / "whole", epochs=4)
    train(tmp_path / "more", epochs=3)

    class Killed(BaseException):
        pass

    def replace(source, target):
        if Path(target).name == "last.ckpt":
            raise Killed
        os.rename(source, target)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(store.os, "replace", replace)
        patch.setattr(store.shutil, "rmtree", lambda path: None)
        # files of the store itself are whole before
        patch.setattr(store, "claim", lambda *arguments: None)
        train(tmp_path / "more", epochs=4)
    folder = state_folder(tmp_path / "more", settings_of(4), DATA)
    assert (folder / ".copy").exists() and list(folder.glob("epoch-*")) and not (folder / "last.ckpt").exists()
    more, _ = train(tmp_path / "more", epochs=4)
    assert more == folder and not (folder / ".copy").exists()
    assert_same(more, whole)


def test_a_full_disk_ends_a_copy_in_a_sentence(tmp_path, monkeypatch):
    whole, _ = train(tmp_path / "whole", epochs=4)
    short, _ = train(tmp_path / "more", epochs=3)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(UserError, match=rf"the disk is full, {short} cannot be copied"):
        patch.setattr(store.shutil, "copy2", full)
        train(tmp_path / "more", epochs=4)
    more, _ = train(tmp_path / "more", epochs=4)
    assert_same(more, whole)


# -- forgetting


@pytest.fixture
def shared(tmp_path):
    """Two states: one of both runs, one of two seeds' worth of claims of `study` alone."""
    both, _ = train(tmp_path)
    train(tmp_path, User("another", "own", "pair", 0))
    alone, _ = train(tmp_path, User("study", "own", "attention", 1), learning_rate=0.02)
    return tmp_path, both, alone


def test_forget_drops_claims_and_removes_what_nobody_claims(shared, capsys):
    root, both, alone = shared
    main(["forget", "study", "--state", str(root)])
    assert capsys.readouterr().out.splitlines() == [
        "study no longer claims own/attention/seed1 and own/pair/seed0.",
        f"Removed {alone}, which nobody else claims.",
        f"Kept {both}, which another/own/pair/seed0 claims.",
    ]
    assert sorted(path.name for path in root.iterdir()) == [both.name]
    main(["forget", "another", "pair", "--state", str(root)])
    assert list(root.iterdir()) == []
    task = Task()
    train(root, task=task)
    assert task.made  # anew


def test_forget_one_arm_and_what_is_unknown(shared):
    root, both, alone = shared
    done = forget(root, "study", ["attention"])
    assert done.removed == (alone,) and done.kept == () and done.dropped == (User("study", "own", "attention", 1),)
    with pytest.raises(UserError, match=r"run 'studdy' claims no training here: claims are of another, study"):
        forget(root, "studdy")
    with pytest.raises(UserError, match=r"run 'study' claims no training of an arm 'attention': its arms are pair"):
        forget(root, "study", ["pair", "attention"])
    assert len(store.read_users(both)) == 2
    with pytest.raises(UserError, match="no run claims any"):
        forget(root / "none", "study")


def test_a_running_training_is_not_forgotten_and_nothing_else_is_then(shared):
    root, both, alone = shared
    with folder_lock(alone, "training"), pytest.raises(UserError, match=rf"{alone}: .* is training here: wait for it"):
        forget(root, "study")
    assert len(store.read_users(both)) == 2 and len(store.read_users(alone)) == 1


def test_a_lock_on_a_folder_that_was_removed_meanwhile_is_taken_again(tmp_path, monkeypatch):
    """A job that waits for `forget` gets the lock of a file that is no longer there: it must not work in a removed folder."""
    folder, opened_files = tmp_path / "state", []

    def flock(file, _):
        if not opened_files:
            shutil.rmtree(folder)
        opened_files.append(file)

    monkeypatch.setattr("fcntl.flock", flock)
    with folder_lock(folder, "training"):
        assert len(opened_files) == 2 and (folder / "lock").exists()


# -- the choice of epochs


def test_a_choice_whose_weights_are_gone_says_which_and_what_to_do(tmp_path):
    for epoch in (2, 3):
        (tmp_path / f"epoch-{epoch}.safetensors").touch()
    metrics = {
        epoch: {"dev_cer": cer, "dev_loss": loss} for epoch, cer, loss in ((1, 9.0, 0.1), (2, 5.0, None), (3, 1.0, 2.0))
    }
    epochs = Epochs(tmp_path, metrics)
    assert epochs.chosen(Selection(2, "dev_cer"), LAYOUT.weights) == [3, 2]
    with pytest.raises(
        UserError, match=r"of the 3 best epochs by dev_cer, the weights of 1 .*: lower training.keep_best to 2, or"
    ):
        epochs.chosen(Selection(10, "dev_cer"), LAYOUT.weights)
    with pytest.raises(
        UserError, match=r"of the 1 best epochs by dev_loss, the weights of 1 are no longer kept: remove"
    ):
        epochs.chosen(Selection(1, "dev_loss"), LAYOUT.weights)
    with pytest.raises(UserError, match=r"best_by 'dev_wer': this training measured dev_cer, dev_loss: choose"):
        epochs.chosen(Selection(1, "dev_wer"), LAYOUT.weights)
