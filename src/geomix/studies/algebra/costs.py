"""What a training step of each arm of phases 2 and 3 costs, on one CPU thread, one arm after the other: CPU time and kept memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from geomix.files import write_json
from geomix.settings import language_training_settings, training_settings
from geomix.studies.algebra.jobs import step_costs
from geomix.training.record import job_record

CPU = torch.device("cpu")


def measure_costs(kind: str, study: Mapping[str, Any], files: Any, out: str | Path) -> dict[str, Any]:
    """Measure the untrained model of each arm at its largest batch and write {"arms": {arm: `step_costs`}, "record"} to `out`.

    kind, study, files : `language` or `speech`, the study's settings and the prepared files, as its training takes them
    """
    torch.set_num_threads(1)
    begun, used = time.perf_counter(), time.process_time()
    measure = {"language": _language, "speech": _speech}[kind]
    arms = {arm: measure(study, arm, files) for arm in study["study"]["arms"]}
    found = {"arms": arms, "record": job_record(begun, used, CPU)}
    write_json(out, found)
    return found


def _language(study: Mapping[str, Any], arm: str, files: Any) -> dict[str, float]:
    from geomix.language.corpus import read_summary
    from geomix.language.task import LanguageTask
    from geomix.language.training import build_model, training_keys

    folder, seed = Path(files[0]).parent, study["study"]["seeds"][0]
    settings = language_training_settings(study, arm, seed)
    model = build_model(settings, read_summary(folder)["vocabulary"]).train()
    batch, positions = settings["training"]["batch"], model.config.positions
    task = LanguageTask(folder, positions=positions, batch=batch, seed=seed, device=CPU, flops_per_token=0.0)
    return step_costs(model, task.largest()[0], training_keys(settings["training"]), 5)


def _speech(study: Mapping[str, Any], arm: str, files: Any) -> dict[str, float]:
    from geomix.speech.prepared import PreparedData
    from geomix.speech.tokenizer import Tokenizer
    from geomix.speech.training import build_model, make_task, training_keys

    data = PreparedData.of(files)
    settings = training_settings(study, arm, study["study"]["seeds"][0], "own")
    _, model = build_model(settings, Tokenizer.load(data.tokenizer), data.normalisation)
    task = make_task(settings, data, model.train(), CPU, 0.0)
    return step_costs(model, task.largest()[0], training_keys(settings), 3)
