"""Checkpoints survive what happens to files."""

import errno
import os
import subprocess

import pytest
import torch

from geomix.errors import UserError
from geomix.training import checkpoints
from geomix.training.checkpoints import Identity, load_state, read_settings, save_state

SETTINGS = {"seed": 1, "training": {"learning_rate": 0.002, "betas": [0.9, 0.98]}}
THIS = Identity("0123456789ab", SETTINGS)


def state(value):
    return {"model": {"w": torch.full((1000,), float(value))}, "step": value, "scores": {1: 0.5}}


def test_round_trip(tmp_path):
    assert load_state(tmp_path, THIS) == (None, None)
    save_state(tmp_path, state(1), THIS)
    save_state(tmp_path, state(2), THIS)
    loaded, warning = load_state(tmp_path, THIS)
    assert warning is None
    assert loaded["step"] == 2 and loaded["scores"] == {1: 0.5}
    assert torch.equal(loaded["model"]["w"], torch.full((1000,), 2.0))
    assert read_settings(tmp_path) == SETTINGS
    assert {p.name for p in tmp_path.iterdir()} == {"last.ckpt", "previous.ckpt"}


@pytest.mark.parametrize("damage", ["truncated", "one bit", "empty", "missing", "other file"])
def test_the_previous_checkpoint_serves_when_the_last_is_damaged(tmp_path, damage):
    save_state(tmp_path, state(1), THIS)
    save_state(tmp_path, state(2), THIS)
    last = tmp_path / "last.ckpt"
    content = bytearray(last.read_bytes())
    if damage == "missing":  # a kill between the two renames
        last.unlink()
    elif damage == "one bit":
        content[len(content) // 2] ^= 4
        last.write_bytes(content)
    else:
        last.write_bytes({"truncated": content[:-100], "empty": b"", "other file": b"hello\nworld"}[damage])
    loaded, warning = load_state(tmp_path, THIS)
    assert loaded["step"] == 1
    assert damage == "missing" or "last.ckpt was damaged: going on from previous.ckpt" in warning
    # the damaged file must not take the good one's place at the next save
    save_state(tmp_path, state(3), THIS)
    (tmp_path / "last.ckpt").write_bytes(b"")
    assert load_state(tmp_path, THIS)[0]["step"] in (1, 3)


def test_two_damaged_checkpoints_end_in_a_sentence(tmp_path):
    save_state(tmp_path, state(1), THIS)
    save_state(tmp_path, state(2), THIS)
    for name in ("last.ckpt", "previous.ckpt"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UserError, match="no earlier checkpoint is left: remove the folder"):
        load_state(tmp_path, THIS)


def test_a_checkpoint_of_another_hash_is_refused_by_the_key(tmp_path):
    save_state(tmp_path, state(1), THIS)
    other = {"seed": 1, "training": {"learning_rate": 0.001, "betas": (0.9, 0.98)}}
    with pytest.raises(UserError, match=r"training\.learning_rate is 0\.002 there, 0\.001 here"):
        load_state(tmp_path, Identity("ba9876543210", other))


def test_the_hash_alone_decides(tmp_path):
    """A key that was added since, at the value that reproduces the time before it, is in the settings and not in the hash."""
    save_state(tmp_path, state(1), THIS)
    assert load_state(tmp_path, Identity(THIS.hash, {**SETTINGS, "later": None}))[0]["step"] == 1


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    save_state(tmp_path, state(1), THIS)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="disk is full"):
        save_state(tmp_path, state(2), THIS)
    monkeypatch.undo()
    assert load_state(tmp_path, THIS)[0]["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_really_full_disk(small_disk):
    save_state(small_disk, state(1), THIS)
    large = {**state(2), "more": torch.zeros(30_000)}
    with pytest.raises(UserError, match="disk is full"):
        save_state(small_disk, large, THIS)
    assert load_state(small_disk, THIS)[0]["step"] == 1
    assert checkpoints.LAST in os.listdir(small_disk)
