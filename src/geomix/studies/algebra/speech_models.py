"""Phase 3 on speech: the feed-forward layers of a small Conformer-CTC made of an arm's linear maps, everything else the study's own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from geomix.files import write_json
from geomix.models.conformer import ConformerCTC
from geomix.models.flops import macs_per_frame
from geomix.speech.decoding import greedy_decode
from geomix.speech.features import open_features
from geomix.speech.manifest import read_manifest
from geomix.speech.prepared import PreparedData
from geomix.speech.scoring import score_texts
from geomix.speech.task import SpeechTask
from geomix.speech.tokenizer import Tokenizer
from geomix.speech.training import build_model, make_task, training_keys
from geomix.studies.algebra.architectures import describe_architecture, feed_forward_size, inner_width, maker
from geomix.studies.algebra.jobs import step_costs
from geomix.training import devices
from geomix.training.averaging import Selection
from geomix.training.options import TrainerOptions
from geomix.training.progress import say
from geomix.training.record import About, job_record
from geomix.training.run import Job, Trained, train
from geomix.training.seeding import seed_all

SELECTION = Selection(1, "dev_cer")
"""The weights of the best dev epoch are scored."""
CPU = torch.device("cpu")


def change_conformer(arm: str, model: ConformerCTC, seed: int) -> None:
    """Replace both feed-forward modules of every block by the arm's maps, in place."""
    width, ff_dim = model.config.width, model.config.ff_dim
    inner = inner_width(arm, width, ff_dim)
    for index, block in enumerate(model.blocks):
        for name in ("feed_forward_macaron", "feed_forward"):
            seed_all(seed, "feed-forward", index, name)
            make, module = maker(arm, width, inner, seed), getattr(block, name)
            module.w_1, module.w_2 = make(width, inner), make(inner, width)


@dataclass(frozen=True)
class SpeechJob:
    """An arm of phase 3 on speech: all its seeds.

    settings : `settings.training_settings` of the attention arm, with the epochs of this phase
    corpus : its name
    options : its selection is `SELECTION`, without a detector: an arm that learns nothing is a result here
    run : of the algebra study, which claims the trainings; state : the store of resumable states (`training.store`)
    """

    settings: Mapping[str, Any]
    arm: str
    data: PreparedData
    corpus: str
    options: TrainerOptions
    run: str
    state: Path

    def model(self, seed: int) -> ConformerCTC:
        """The speech study's model of a seed with the arm's feed-forward maps."""
        settings = {**self.settings, "seed": seed}
        _, model = build_model(settings, Tokenizer.load(self.data.tokenizer), self.data.normalisation)
        change_conformer(self.arm, model, seed)
        return model

    def task(self, model: ConformerCTC, seed: int) -> SpeechTask:
        """Its task: the speech study's."""
        config, arm = model.config, self.arm
        width, ff_dim = config.width, config.ff_dim
        macs = feed_forward_size(arm, width, inner_width(arm, width, ff_dim))["macs"]
        extra = config.blocks * 2 * (macs - 2 * width * ff_dim)
        flops = 6 * config.frame_rate * (macs_per_frame(config, round(config.frame_rate * 12.68)) + extra)
        return make_task({**self.settings, "seed": seed}, self.data, model, CPU, flops)

    def train(self, seed: int) -> Trained[SpeechTask]:
        """Train a seed, or go on where it was interrupted, to the best epoch's weights."""
        own = {**self.settings, "seed": seed, "arm": self.arm, "phase": "speech"}
        job = Job(
            about=About(self.run, self.arm, self.corpus),
            track="speech",
            seed=seed,
            settings=own,
            data_hashes=self.data.hashes,
            training=training_keys(self.settings),
            options=self.options,
            model=lambda: self.model(seed),
            task=lambda model: self.task(model, seed),
            checkpoint_settings=own,
            device=CPU,
            threads=1,
            prepare=devices.keep_freed_memory,
            state_root=self.state,
        )
        return train(job, best=True)


def error_rates(trained: Trained[SpeechTask], tests: Mapping[str, tuple[Path, Path]]) -> dict[str, float]:
    """Word error rate (%) of each test set, decoded greedily; tests : set -> (manifest, features)."""
    rates = {}
    for test, (manifest, features) in tests.items():
        references = {u.id: u.text for u in read_manifest(manifest)}
        found = greedy_decode(
            trained.model, open_features([features]), trained.task.tokenizer, list(references), device=CPU
        )
        rates[test] = score_texts(references, found, set=test).words.rate
    return rates


def run_speech_job(
    job: SpeechJob, seeds: Sequence[int], tests: Mapping[str, tuple[Path, Path]], out: str | Path
) -> dict[str, Any]:
    """Train all seeds of an arm, score them on the test sets (`error_rates`) and write what was found to the JSON file `out`."""
    begun, used = time.perf_counter(), time.process_time()
    runs = []
    for seed in seeds:
        trained = job.train(seed)
        scores, wer = trained.summary.scores, error_rates(trained, tests)
        by_epoch = [scores[epoch] for epoch in sorted(scores)]
        runs.append({"seed": seed, "wer": wer, "best_epoch": trained.summary.best[0], "by_epoch": by_epoch})
        say(f"speech/{job.arm}/seed{seed}: WER {', '.join(f'{t} {w:.1f} %' for t, w in wer.items())}")
    model = job.model(seeds[0]).train()
    task = job.task(model, seeds[0])
    first, size = task.largest()[0], job.settings["model"]
    result = {
        "settings": dict(job.settings),
        "arm": job.arm,
        **describe_architecture(job.arm, size["width"], size["ff_dim"], list(seeds)),
        "parameters": sum(p.numel() for p in model.parameters()),
        "flops_per_audio_second": task.flops_per_unit,
        "runs": runs,
        **step_costs(model, first, training_keys(job.settings), 3),
        "batch_audio_seconds": first.work,
        "record": job_record(begun, used, CPU),
    }
    write_json(out, result)
    return result
