"""One training from its job to the declared outputs, whatever is trained.

A domain (speech, language) or a study says what is trained by a `Job`: settings, hashes of the data, and how model and task are
made. `train` runs it to its end; `run` also writes what the train rules declare, for which the domain gives `Outputs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors.torch import load_file
from torch import nn

from geomix.files import atomic_path, write_json
from geomix.tensors import load_state
from geomix.training import devices
from geomix.training.checkpoints import LAYOUT, Identity
from geomix.training.loop import Trainer
from geomix.training.meter import Summary
from geomix.training.options import TrainerOptions, TrainingSettings
from geomix.training.progress import LOG, say
from geomix.training.record import (
    About,
    Course,
    LanguagePart,
    Origin,
    RunRecord,
    SpeechPart,
    Subject,
    course_of,
    origin_of,
)
from geomix.training.store import Request, User, opened, plain
from geomix.training.task import Task

AnyTask = TypeVar("AnyTask", bound=Task)


@dataclass(frozen=True, kw_only=True)
class Job(Generic[AnyTask]):
    """A training.

    about, track, seed : what it is called
    settings, data_hashes : all that decides its weights: they name its state folder
    training : the part of the settings that the loop reads; options : what never changes a weight
    model : makes the untrained model, the same one at every call
    task : makes the task of that model
    checkpoint_settings : what the head of a checkpoint says of the training beside the hashes of its data
    device, threads : where it runs
    prepare : sets up the process, before anything is made
    state_root : the store (`training.store`)
    keep : puts into the state folder what its model cannot be built without
    """

    about: About
    track: str
    seed: int
    settings: Mapping[str, Any]
    data_hashes: Mapping[str, str]
    training: TrainingSettings
    options: TrainerOptions
    model: Callable[[], nn.Module]
    task: Callable[[nn.Module], AnyTask]
    checkpoint_settings: Mapping[str, Any]
    device: torch.device
    threads: int
    prepare: Callable[[], None]
    state_root: Path
    keep: Callable[[Path], None] = lambda folder: None

    @property
    def user(self) -> User:
        """Who asks the store for it."""
        return User(self.about.run, self.track, self.about.arm, self.seed)


@dataclass(frozen=True)
class Trained(Generic[AnyTask]):
    """A training that has come to its end.

    model : with the weights of the last epoch, or of the best one, in eval mode, on the job's device
    state : its folder in the store
    origin, course : of the job that finished it, which for a restored training is not this one
    """

    model: nn.Module
    task: AnyTask
    state: Path
    summary: Summary
    origin: Origin
    course: Course


@dataclass(frozen=True)
class Described:
    """What a record says of a training in its domain's terms: counts and hashes of the data, and the domain's own part."""

    data: Mapping[str, Any]
    domain: SpeechPart | LanguagePart


@dataclass(frozen=True)
class Outputs(Generic[AnyTask]):
    """What a domain adds to the outputs of a training.

    diagnose : the untrained model, in eval mode, and the trained one -> the content of diagnostics.json
    describe : what the record says of it
    save : writes the best epoch's weights as a model folder; None: epochs are averaged later, and epochs.json is written for it
    """

    diagnose: Callable[[nn.Module, Trained[AnyTask]], Any]
    describe: Callable[[Trained[AnyTask]], Described]
    save: Callable[[nn.Module, Path], None] | None = None


def train(job: Job[AnyTask], *, best: bool) -> Trained[AnyTask]:
    """Train to the end: anew, on from where it was interrupted or from a copy of a shorter one; a finished one is restored.

    best : whether the model is left with the best epoch's weights instead of the last one's
    """
    torch.set_num_threads(job.threads)
    job.prepare()
    model = job.model()
    task, user, options = job.task(model), job.user, job.options
    say(f"{user.name}: {_parameters(model):,} parameters, {task.size}, on {devices.device_name(job.device)}")
    request = Request(job.settings, job.data_hashes, user, LAYOUT, options.selection, job.training.schedule)
    with opened(job.state_root, request) as found:
        job.keep(found.folder)
        identity = Identity(found.folder.name, {**job.checkpoint_settings, "hashes": dict(job.data_hashes)})
        trainer = Trainer(
            model,
            task,
            job.training,
            options,
            state_dir=found.folder,
            identity=identity,
            seed=job.seed,
            device=job.device,
            name=user.name,
        )
        summary = trainer.run()
        ours = course_of(summary)
        origin, course = found.finish(summary.metrics, origin_of(summary, job.device, job.threads), ours)
        if best:
            load_state(model, load_file(found.folder / LAYOUT.weights.format(summary.best[0])))
    # another selection than that of the job that finished it chooses other epochs
    course = replace(course, best_epochs=ours.best_epochs)
    return Trained(model.eval(), task, found.folder, summary, origin, course)


def run(job: Job[AnyTask], outputs: Outputs[AnyTask], out: Path) -> RunRecord:
    """Train, and write into `out` what the train rules declare; the record, which is returned, comes last.

    diagnostics.json, log.jsonl, record.json, and either the model of the best epoch or epochs.json ({"state", "epochs": {"1":
    {"dev_loss", ...}, ...}}).
    """
    trained = train(job, best=outputs.save is not None)
    diagnostics = outputs.diagnose(job.model().eval(), trained)
    described = outputs.describe(trained)
    write_json(out / "diagnostics.json", diagnostics)
    if outputs.save:
        outputs.save(trained.model, out)
    else:
        epochs = {"state": os.path.relpath(trained.state), "epochs": plain(trained.summary.metrics)}
        write_json(out / "epochs.json", epochs)
    with atomic_path(out / LOG) as temporary:
        temporary.write_bytes((trained.state / LOG).read_bytes())
    parameters = _parameters(trained.model)
    subject = Subject.of(job.about, job.settings, trained.state, parameters=parameters, data=described.data)
    record = RunRecord(subject, trained.origin, trained.course, described.domain)
    record.write(out / "record.json")
    return record


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
