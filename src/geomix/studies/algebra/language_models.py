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
from geomix.language.training_task import LanguageTask, build_model
from geomix.models.transformer_lm import TransformerLM
from geomix.studies.algebra.jobs import step_costs, train_to_best
from geomix.training.loop import TrainingSettings
from geomix.training.progress import say
from geomix.training.record import job_record
from geomix.training.store import User

Change = Callable[[TransformerLM, int], None]


def train_language_arm(
    settings: Mapping[str, Any],
    data: str | Path,
    change: Change,
    about: Mapping[str, Any],
    *,
    run: str,
    state: str | Path,
    out: str | Path,
    macs: Callable[[TransformerLM], float],
) -> dict[str, Any]:
    """Train all seeds of an arm and write the record to the JSON file `out`.

    Parameters
    ----------
    settings : `phase`, `arm`, `seeds`, `model` (fields of LanguageModelConfig but vocab and seed) and `training` (batch, epochs,
        learning_rate, ...), as the config has them
    data : folder of the prepared text
    change : replaces, in place, what the arm replaces in a fresh scalar model of a seed
    about : what else the record says of the arm
    run : of the algebra study, which claims the trainings; state : the store of resumable states (`training.store`)
    macs : multiply-adds of a changed model a token
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    begun, used = time.perf_counter(), time.process_time()
    summary, place = read_summary(data), torch.device("cpu")
    training = dict(settings["training"])
    batch = training.pop("batch")
    options = TrainingSettings.from_dict(
        {
            "optimizer": "adamw",
            "accumulation": 1,
            "weight_decay": 0.01,
            "schedule": "cosine_per_epoch",
            "clip": 1.0,
            "precision": "fp32",
            "detect_after": None,
            "keep_best": 1,
            "best_by": "dev_perplexity",
            **training,
        }
    )
    runs = []
    for seed in settings["seeds"]:
        model = changed_model(settings, summary["vocabulary"], change, seed)
        task = LanguageTask(
            data,
            positions=model.config.positions,
            batch=batch,
            seed=seed,
            device=place,
            flops_per_token=6 * macs(model),
        )
        user = User(run, settings["phase"], settings["arm"], seed)
        trained = train_to_best(model, task, options, {**settings, "seeds": seed}, summary["hashes"], user, state=state)
        runs.append(
            {
                "seed": seed,
                "perplexity": {split: task.perplexity(model, split)["token"] for split in ("valid", "test")},
                "best_epoch": trained.best[0],
                "updates": trained.updates,
                "by_epoch": [trained.scores[e] for e in sorted(trained.scores)],
            }
        )
        say(f"{user.name}: test perplexity {runs[-1]['perplexity']['test']:.2f}")
    model = changed_model(settings, summary["vocabulary"], change, settings["seeds"][0]).train()
    first = task.largest()[0]
    result = {
        "settings": dict(settings),
        **about,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "flops_per_token": 6 * macs(model),
        "runs": runs,
        **step_costs(model, first, options, 5),
        "batch_tokens": first.work,
        "data": {k: summary[k] for k in ("name", "vocabulary", "splits", "unigram_entropy", "hashes")},
        "model": dataclasses.asdict(model.config),
        "record": job_record(begun, used, place),
    }
    write_json(out, result)
    return result


def changed_model(settings: Mapping[str, Any], vocabulary: int, change: Change, seed: int) -> TransformerLM:
    """The scalar model of a seed, with what the arm replaces replaced; the rest has the same initial weights in every arm."""
    model = build_model({"model": {**settings["model"], "mixer": {"mixer": "attention", "heads": settings["heads"]}}, "seed": seed}, vocabulary)  # fmt: skip
    change(model, seed)
    return model


def attention_macs(model: TransformerLM) -> float:
    """Multiply-adds a token that no arm changes: projections and scores of attention, and the tied output layer."""
    config = model.config
    return config.blocks * (4 * config.width**2 + config.positions * config.width) + config.vocab * config.width
