"""One training from its job to the declared outputs, on a toy domain: two callables, and everything else is the orchestration's."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from geomix.errors import UserError
from geomix.files import read_json
from geomix.tensors import state_once, write_tensors
from geomix.training.averaging import Selection
from geomix.training.options import TrainerOptions, TrainingSettings
from geomix.training.record import About, LanguagePart, RunRecord
from geomix.training.run import Described, Job, Outputs, run, train
from tests.training.toy import ROOM, SETTINGS, Model, Task, terminate_at


def job_of(root, about=None, selection=ROOM, task=Task, **training):
    training = {**SETTINGS, **training}
    settings = {"track": "toy", "seed": 0, "model": {"mixer": {"mixer": "none"}}, "training": training}
    return Job(
        about=about or About("study", "plain", "noise"),
        track="toy",
        seed=0,
        settings=settings,
        data_hashes={"train": "1"},
        training=TrainingSettings.from_dict(training),
        options=TrainerOptions(selection, None, save_minutes=10.0, log_every=1),
        model=Model,
        task=lambda model: task(),
        checkpoint_settings=settings,
        device=torch.device("cpu"),
        threads=1,
        prepare=lambda: None,
        state_root=root / "state",
    )


def outputs(save=None):
    def describe(trained):
        part = LanguagePart(flops_per_token=1.0, tokens_per_second=trained.summary.rate, best_epoch=1, perplexity={})
        return Described({"items": trained.task.count}, part)

    def weight(model):
        return float(model.layers[0].weight.detach().sum())

    return Outputs(lambda start, trained: [weight(start), weight(trained.model)], describe, save)


def test_outputs_are_those_of_the_state_and_the_record_is_read_back(tmp_path):
    out = tmp_path / "out"
    record = run(job_of(tmp_path), outputs(), out)
    assert sorted(path.name for path in out.iterdir()) == [
        "diagnostics.json", "epochs.json", "log.jsonl", "record.json",
    ]  # fmt: skip
    assert RunRecord.read(out / "record.json") == record
    state = Path(read_json(out / "epochs.json")["state"])
    assert (out / "log.jsonl").read_bytes() == (state / "log.jsonl").read_bytes()
    start, end = read_json(out / "diagnostics.json")
    assert start == float(Model().layers[0].weight.detach().sum()) != end
    values = read_json(out / "record.json")
    assert values["parameters"] == sum(p.numel() for p in Model().parameters())
    assert (values["arm"], values["mixer"], values["data"]) == ("plain", {"mixer": "none"}, {"items": 10})
    assert (values["epochs"], values["updates"], values["settings_hash"]) == (3, 9, state.name)


def test_a_restored_training_keeps_its_origin_and_says_this_choice_of_epochs(tmp_path):
    first = run(job_of(tmp_path), outputs(), tmp_path / "out")
    finished = next((tmp_path / "state").glob("*/finished.json"))
    values = read_json(finished)
    values["origin"]["commit"] = "of another time"
    finished.write_text(json.dumps(values))
    job = job_of(tmp_path, About("other", "renamed", "noise"), Selection(1, "dev_loss"))
    again = run(job, outputs(), tmp_path / "again")
    assert again.origin.commit == "of another time" and again.subject.run == "other"
    assert again.course.best_epochs == first.course.best_epochs[:1] and again.course.updates == first.course.updates


def test_the_best_epoch_is_the_model_that_is_saved(tmp_path):
    class Worse(Task):
        """The first epoch is judged best."""

        def evaluate(self, model):
            self.judged = getattr(self, "judged", 0) + 1
            return {"dev_loss": float(self.judged)}

    def save(model, folder):
        write_tensors(folder / "model.safetensors", state_once(model))

    out = tmp_path / "out"
    run(job_of(tmp_path, selection=Selection(1, "dev_loss"), task=Worse), outputs(save), out)
    kept = next((tmp_path / "state").glob("*/epoch-*.safetensors"))
    assert kept.name == "epoch-1.safetensors" and not (out / "epochs.json").exists()
    saved, weights = load_file(out / "model.safetensors"), load_file(kept)
    assert all(torch.equal(saved[name], weights[name]) for name in weights)


def test_nothing_is_declared_before_the_end(tmp_path):
    job = job_of(tmp_path, task=lambda: Task(spoil=terminate_at(2, 5)))
    with pytest.raises(UserError, match="toy/plain/seed0: stopped by SIGTERM"):
        run(job, outputs(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert train(job_of(tmp_path), best=False).course.attempts == 2
