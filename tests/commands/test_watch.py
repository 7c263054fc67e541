"""`geomix status --watch`: what one picture of it holds."""

import json

from geomix.cli import main
from geomix.commands.status import study_status
from geomix.commands.watch import frame, sparkline
from geomix.files import folder_lock
from geomix.training.progress import LOG, Log
from tests.commands.test_status import PLANNED, STATES, study  # noqa: F401

CONFIG = {"gate": {"arm": "attention"}, "arms": {"attention": {"gated": False}, "grassmann": {"gated": True}}}


def line_of(lines, name):
    return next(line for line in lines if line.startswith(name))


def test_a_picture_says_how_it_goes_and_why_it_does_not(study):  # noqa: F811
    results, state = study / "results/run", study / "state" / STATES[0]
    log = Log(state / LOG, 10**6)
    for epoch in (4, 5, 6):
        log.append(kind="epoch", epoch=epoch, update=300 * epoch, train_loss=60 / epoch, dev_wer=90 / epoch)
    log.append(kind="step", epoch=7, update=1900, loss=7.5, audio_s_per_s=1234.5, time_left_s=600.0)
    log.close()
    with folder_lock(state, "training"):
        lines = frame(results, study_status(results, PLANNED), CONFIG)
        short = frame(results, study_status(results, PLANNED), CONFIG, 5)
    assert "1 running" in lines[0] and lines[4].startswith("own/grassmann/seed0")
    running = line_of(lines, "own/grassmann/seed0").split()
    assert running[1:5] == ["running", "7", "WER", "15.0"]
    assert "█▄▁" in lines[4] and "1,234 audio-s/s" in lines[4] and "10 min" in lines[4]
    assert "emits only blanks" in line_of(lines, "own/grassmann/seed1")
    assert "waits for the gate: attention is not measured yet" in line_of(lines, "own/grassmann/seed2")
    assert "gate" not in line_of(lines, "own/attention/seed2")
    assert len(short) == 5 and short[-1] == f"... and {len(lines) - 4} more"
    (results / "parity.json").write_text(json.dumps({"sentence": "missed by 2"}))
    assert "missed by 2" in line_of(frame(results, study_status(results, PLANNED), CONFIG), "own/grassmann/seed2")


def test_without_a_terminal_it_is_said_once(study, capsys):  # noqa: F811
    main(["status", str(study / "results/run"), "--watch"])
    said = capsys.readouterr().out
    assert "own/attention/seed0" in said and "\x1b" not in said


def test_sparklines():
    assert sparkline([1, 2, None, 3]) == "▁▅█" and sparkline([]) == "" and sparkline([2.0, 2.0]) == "▁▁"
    assert len(sparkline(range(1000))) == 16
