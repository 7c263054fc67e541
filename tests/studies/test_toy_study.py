"""A study of its own domain in a few lines: data, task and metric; the house does the rest, from the description to the table."""

import statistics

import pytest
import torch
from torch import nn

from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.report.columns import Column, Table, fixed
from geomix.statistics import gate_verdict
from geomix.studies.base import Judged, Kind, describe
from geomix.studies.comparison import compare_study, number_a_seed
from geomix.studies.gate import measure_parity, pass_gate
from geomix.training.averaging import Selection
from geomix.training.options import TrainerOptions, TrainingSettings
from geomix.training.record import About
from geomix.training.results import Study
from geomix.training.run import Job, train
from tests.training.toy import SETTINGS, Task


class Sum(nn.Module):
    """The sum of five numbers, as a linear map of the first few of them."""

    def __init__(self, inputs: int, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.inputs, self.map = inputs, nn.Linear(inputs, 1)

    def forward(self, x, y):
        return {"loss": (self.map(x[:, : self.inputs]).squeeze(1) - y).square().mean()}


def train_sum(config, track, arm, seed, files, out, threads):
    """Data and task are those of tests.training.toy: noisy sums, judged on fifty others."""
    definition, training = config["arms"][arm], {**SETTINGS, **config["training"]}
    settings = {"track": "toy", "seed": seed, "model": definition, "training": training}
    job = Job(
        about=About(config["run"], arm, config["corpus"]["name"]), track="toy", seed=seed, settings=settings, data_hashes={},
        training=TrainingSettings.from_dict(training), options=TrainerOptions(Selection(1, "dev_loss"), None, 10.0, 9),
        model=lambda: Sum(definition["inputs"], seed), task=lambda model: Task(seed), checkpoint_settings=settings,
        device=torch.device("cpu"), threads=threads, prepare=lambda: None, state_root=files["state"],
    )  # fmt: skip
    trained = train(job, best=True)
    error = trained.task.evaluate(trained.model)["dev_loss"]
    write_json(out / "error.json", {"valid": error, "test": error})


def judge(anchor, measured, corpus):
    verdict = gate_verdict(measured, {"valid": anchor["most"]}, {"valid": 0}, arm=anchor["arm"], unit="squared error")
    return Judged(verdict, {"measured": measured, "sources": {}})


ERROR = number_a_seed(
    name="squared error", plural="squared errors", file="error.json", judged_sets=lambda anchor: ["valid"], judge=judge,
    read=lambda trained, name: read_json(trained.folder / "error.json")[name],
)  # fmt: skip
TOY = Kind(name="toy", metric=ERROR, train=train_sum)

CONFIG = {
    "run": "toy",
    "corpus": {"name": "sums"},
    "arms": {"all": {"inputs": 5, "gated": False}, "three": {"inputs": 3, "gated": True}},
    "study": {"arms": ["all", "three"], "seeds": [0, 1]},
    "comparison": {"planned": [["three", "all"]]},
    "gate": {"arm": "all", "seeds": [0, 1], "most": 0.5, "mode": "enforce"},
    "training": {"epochs": 12, "learning_rate": 0.1},
}


def test_a_toy_study_runs_to_its_table(tmp_path):
    folder, gate = tmp_path / "toy", CONFIG["gate"]
    describe(TOY, CONFIG, {}, folder / "study.json")
    study = Study.read(folder)

    def train_arm(arm):
        for trained in study.of("", arm):
            TOY.train(CONFIG, "", arm, trained.seed, {"state": tmp_path / "state"}, trained.folder, 1)

    train_arm("all")
    measure_parity(TOY, folder, gate | {"most": 0.0})
    with pytest.raises(
        UserError, match=r"all has 0\.\d\d squared error on valid \(target 0 \+ 0, missed by .*gate.mode"
    ):
        pass_gate(folder / "parity.json")
    measure_parity(TOY, folder, gate)
    assert "reached" in pass_gate(folder / "parity.json")
    train_arm("three")

    found = compare_study(TOY, folder)
    assert [(e["set"], e["a"], e["b"], e["planned"]) for e in found] == [
        ("valid", "three", "all", True), ("test", "three", "all", True),
    ]  # fmt: skip
    assert found[0]["verdict"] == "all better" and found[0]["low"] > 1 and found[0]["seeds_a"] == 2
    errors = {arm: [ERROR.read(trained, "test") for trained in study.of("", arm)] for arm in study.arms}
    mean = Column("error", lambda arm: statistics.fmean(errors[arm]), ERROR.name, fixed(2))
    table = Table.of([Column("arm", str), mean], study.arms)
    assert table.header == ["arm", "squared error"] and [line[0] for line in table.cells] == ["all", "three"]
    assert float(table.cells[0][1]) < 0.5 < float(table.cells[1][1])
