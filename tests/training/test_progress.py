"""The log of a run, and what it tells of a run that is alive, dead or never was."""

import json

import pytest

from geomix.files import folder_lock
from geomix.training.progress import LOG, Log, duration, read_log, read_progress


def test_log_is_cut_back_and_numbers_that_json_lacks_become_null(tmp_path):
    log = Log(tmp_path / LOG)
    log.append(kind="step", epoch=1, update=1, loss=float("inf"), time_left_s=60.0)
    kept = log.synchronised_length()
    log.append(kind="step", epoch=1, update=2, loss=1.0)
    log.close()
    log = Log(tmp_path / LOG, kept)
    log.append(kind="step", epoch=1, update=2, loss=2.0)
    log.close()
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [(line["update"], line["loss"]) for line in lines] == [(1, None), (2, 2.0)]
    with open(tmp_path / LOG, "a") as file:
        file.write('{"kind": "st')  # a kill in the middle of a line
    assert len(read_log(tmp_path / LOG)) == 2


def test_progress_tells_the_living_from_the_dead(tmp_path):
    assert read_progress(tmp_path) is None
    with folder_lock(tmp_path, "training"):
        log = Log(tmp_path / LOG)
        log.append(kind="step", epoch=2, update=7, loss=1.5, time_left_s=90.0)
        log.append(kind="epoch", epoch=2, update=8, dev_loss=1.0)
        log.close()
        progress = read_progress(tmp_path)
        assert progress.alive
        assert (progress.epoch, progress.update, progress.loss, progress.time_left) == (2, 8, 1.5, 90.0)
    assert not read_progress(tmp_path).alive


@pytest.mark.parametrize(("seconds", "text"), [(42, "42 s"), (600, "10 min"), (12240, "3.4 h")])
def test_duration(seconds, text):
    assert duration(seconds) == text
