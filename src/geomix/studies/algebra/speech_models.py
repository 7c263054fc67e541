"""Phase 3 on speech: the feed-forward layers of a small Conformer-CTC made of an arm's linear maps, everything else the study's own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from geomix.files import write_json
from geomix.models.conformer import ConformerCTC
from geomix.models.flops import macs_per_frame
from geomix.speech.augmentation import SpecAugment
from geomix.speech.decoding import greedy_decode
from geomix.speech.manifest import read_manifest
from geomix.speech.scoring import score_texts
from geomix.speech.tokenizer import Tokenizer
from geomix.speech.training_task import PreparedData, SpeechTask, build_model, open_features
from geomix.studies.algebra.architectures import describe_architecture, inner_width, maker
from geomix.studies.algebra.jobs import step_costs, train_to_best
from geomix.training import devices
from geomix.training.loop import TrainingSettings
from geomix.training.progress import say
from geomix.training.record import job_record
from geomix.training.seeding import seed_all
from geomix.training.store import User


def change_conformer(arm: str, model: ConformerCTC, seed: int) -> None:
    """Replace both feed-forward modules of every block by the arm's maps, in place."""
    width, ff_dim = model.config.width, model.config.ff_dim
    inner = inner_width(arm, width, ff_dim)
    for index, block in enumerate(model.blocks):
        for name in ("feed_forward_macaron", "feed_forward"):
            seed_all(seed, "feed-forward", index, name)
            make, module = maker(arm, width, inner, seed), getattr(block, name)
            module.w_1, module.w_2 = make(width, inner), make(inner, width)


def run_speech_arm(
    settings: Mapping[str, Any],
    arm: str,
    seeds: Sequence[int],
    data: PreparedData,
    tests: Mapping[str, tuple[Path, Path]],
    *,
    run: str,
    state: str | Path,
    out: str | Path,
) -> dict[str, Any]:
    """Train all seeds of an arm, score them on the test sets and write the record to the JSON file `out`.

    Parameters
    ----------
    settings : `config.training_settings` of the attention arm, with the epochs of this phase
    tests : set -> (manifest, features); the weights of the best dev epoch are decoded greedily
    run : of the algebra study, which claims the trainings; state : the store of resumable states (`training.store`)
    """
    torch.set_num_threads(1)
    devices.keep_freed_memory()
    begun, used, place = time.perf_counter(), time.process_time(), torch.device("cpu")
    training = dict(settings["training"])
    bins = training.pop("batch_bins")
    options = TrainingSettings.from_dict({"detect_after": None, **training, "keep_best": 1})
    tokenizer, runs = Tokenizer.load(data.tokenizer), []
    width, ff_dim = settings["model"]["width"], settings["model"]["ff_dim"]
    about = describe_architecture(arm, width, ff_dim, list(seeds))

    def build(seed: int) -> tuple[Any, ConformerCTC, SpeechTask]:
        config, model = build_model({**settings, "seed": seed}, tokenizer, data.normalisation)
        change_conformer(arm, model, seed)
        frames = round(config.frame_rate * 12.68)
        extra = config.blocks * 2 * (about["block"]["macs"] - 2 * width * ff_dim)
        task = SpeechTask(
            model,
            data,
            batch_bins=bins,
            augmentation=SpecAugment(**settings["augmentation"]),
            seed=seed,
            device=place,
            flops_per_audio_second=6 * config.frame_rate * (macs_per_frame(config, frames) + extra),
        )
        return config, model, task

    for seed in seeds:
        config, model, task = build(seed)
        identity = {**settings, "seed": seed, "arm": arm, "phase": "speech"}
        user = User(run, "speech", arm, seed)
        trained = train_to_best(model, task, options, identity, data.hashes, user, state=state)
        wer = {}
        for test, (manifest, features) in tests.items():
            references = {u.id: u.text for u in read_manifest(manifest)}
            found = greedy_decode(model, open_features([features]), tokenizer, list(references), device=place)
            wer[test] = score_texts(references, found, set=test).words.rate
        runs.append({"seed": seed, "wer": wer, "best_epoch": trained.best[0], "by_epoch": [trained.scores[e] for e in sorted(trained.scores)]})  # fmt: skip
        say(f"{user.name}: WER {', '.join(f'{t} {w:.1f} %' for t, w in wer.items())}")
    config, model, task = build(seeds[0])
    model.train()
    first = task.largest()[0]
    result = {
        "settings": dict(settings),
        "arm": arm,
        **about,
        "parameters": sum(p.numel() for p in model.parameters()),
        "flops_per_audio_second": task.flops_per_unit,
        "runs": runs,
        **step_costs(model, first, options, 3),
        "batch_audio_seconds": first.work,
        "record": job_record(begun, used, place),
    }
    write_json(out, result)
    return result
