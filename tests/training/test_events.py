"""Event files for TensorBoard beside the log."""

from dataclasses import replace

from tensorboardX.proto import event_pb2

from geomix.training.progress import LOG, read_log
from tests.training.toy import trainer


def scalars(folder):
    """{tag: {step: value}} of a folder of event files, records read by their length."""
    found = {}
    for path in folder.iterdir():
        data, at = path.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
            at += 12 + length + 4
    return found


def test_events_are_the_numbers_of_the_log(tmp_path):
    one = trainer(tmp_path / "on", epochs=2)
    one.options = replace(one.options, tensorboard=True)
    one.run()
    lines = [line for line in read_log(tmp_path / "on" / LOG) if line["kind"] == "step"]
    events = scalars(tmp_path / "on" / "tensorboard")
    assert list(events["step/loss"]) == [line["update"] for line in lines]
    assert abs(events["step/loss"][lines[-1]["update"]] - lines[-1]["loss"]) < 1e-6 and "epoch/dev_loss" in events


def test_it_costs_nothing_when_off(tmp_path):
    trainer(tmp_path / "off", epochs=1).run()
    assert not (tmp_path / "off" / "tensorboard").exists()
