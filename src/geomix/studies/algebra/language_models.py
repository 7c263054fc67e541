"""Training of changed language models, for phases 2 and 3: the language study's model and trainer, one thing replaced.

A job is an arm; its seeds are trained one after the other, each in a resumable state folder of its own.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from geomix.files import write_json
from geomix.language.corpus import read_summary
from geomix.language.task import LanguageTask
from geomix.language.training import SELECTION, build_model, flush_denormals, training_keys
from geomix.models.transformer_lm import TransformerLM
from geomix.studies.algebra.jobs import step_costs
from geomix.training.options import TrainerOptions, TrainingSettings
from geomix.training.progress import say
from geomix.training.record import About, job_record
from geomix.training.run import Job, Trained, train

Change = Callable[[TransformerLM, int], None]

RECIPE = {"optimizer": "adamw", "accumulation": 1, "schedule": "cosine_per_epoch", "precision": "fp32"}
"""What phases 2 and 3 do not choose: as the language study trains, AdamW and a cosine over the epochs in fp32, each batch an update."""
SAVE_MINUTES = 10.0


@dataclasses.dataclass(frozen=True)
class LanguageJob:
    """An arm of phase 2 or 3: all its seeds.

    settings : `phase`, `arm`, `seeds`, `heads`, `model` (fields of LanguageModelConfig but vocab and seed) and `training` (batch
        and what `RECIPE` leaves open), as the config has them
    data : folder of the prepared text
    change : replaces, in place, what the arm replaces in a fresh scalar model of a seed
    macs : multiply-adds of a changed model a token
    run : of the algebra study, which claims the trainings; state : the store of resumable states (`training.store`)
    log_every : updates between two lines of progress
    """

    settings: Mapping[str, Any]
    data: Path
    change: Change
    macs: Callable[[TransformerLM], float]
    run: str
    state: Path
    log_every: int

    @property
    def training(self) -> TrainingSettings:
        """How it is trained."""
        return training_keys({**RECIPE, **self.settings["training"]})

    def model(self, seed: int) -> TransformerLM:
        """The scalar model of a seed, with what the arm replaces replaced; the rest has the same initial weights in every arm."""
        mixer = {"mixer": "attention", "heads": self.settings["heads"]}
        vocabulary = read_summary(self.data)["vocabulary"]
        model = build_model({"model": {**self.settings["model"], "mixer": mixer}, "seed": seed}, vocabulary)
        self.change(model, seed)
        return model

    def task(self, model: TransformerLM, seed: int) -> LanguageTask:
        """Its task: the language study's."""
        return LanguageTask(
            self.data,
            positions=model.config.positions,
            batch=self.settings["training"]["batch"],
            seed=seed,
            device=torch.device("cpu"),
            flops_per_token=6 * self.macs(model),
        )

    def train(self, seed: int) -> Trained[LanguageTask]:
        """Train a seed, or go on where it was interrupted, to the best epoch's weights."""
        summary, own = read_summary(self.data), {**self.settings, "seeds": seed}
        job = Job(
            about=About(self.run, self.settings["arm"], summary["name"]),
            track=self.settings["phase"],
            seed=seed,
            settings=own,
            data_hashes=summary["hashes"],
            training=self.training,
            # no detector: an arm that learns nothing is a result here
            options=TrainerOptions(SELECTION, None, SAVE_MINUTES, self.log_every),
            model=lambda: self.model(seed),
            task=lambda model: self.task(model, seed),
            checkpoint_settings=own,
            device=torch.device("cpu"),
            threads=1,
            prepare=flush_denormals,
            state_root=self.state,
        )
        return train(job, best=True)


def run_language_job(job: LanguageJob, about: Mapping[str, Any], out: str | Path) -> dict[str, Any]:
    """Train all seeds of an arm and write what was found to the JSON file `out`.

    about : what else the file says of the arm
    """
    begun, used, settings = time.perf_counter(), time.process_time(), job.settings
    runs = []
    for seed in settings["seeds"]:
        trained = job.train(seed)
        summary, task = trained.summary, trained.task
        perplexity = {split: task.perplexity(trained.model, split)["token"] for split in ("valid", "test")}
        runs.append(
            {
                "seed": seed,
                "perplexity": perplexity,
                "best_epoch": summary.best[0],
                "updates": summary.updates,
                "by_epoch": [summary.scores[epoch] for epoch in sorted(summary.scores)],
            }
        )
        say(f"{settings['phase']}/{settings['arm']}/seed{seed}: test perplexity {perplexity['test']:.2f}")
    model = job.model(settings["seeds"][0]).train()
    first, text = task.largest()[0], read_summary(job.data)
    result = {
        "settings": dict(settings),
        **about,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "flops_per_token": 6 * job.macs(model),
        "runs": runs,
        **step_costs(model, first, job.training, 5),
        "batch_tokens": first.work,
        "data": {k: text[k] for k in ("name", "vocabulary", "splits", "unigram_entropy", "hashes")},
        "model": dataclasses.asdict(model.config),
        "record": job_record(begun, used, torch.device("cpu")),
    }
    write_json(out, result)
    return result


def attention_macs(model: TransformerLM) -> float:
    """Multiply-adds a token that no arm changes: projections and scores of attention, and the tied output layer."""
    config = model.config
    return config.blocks * (4 * config.width**2 + config.positions * config.width) + config.vocab * config.width
