"""Training of language models: what a study of language models calls.

Settings are the plain dictionary of `geomix.settings.language_training_settings`: `model` (fields of
`models.transformer_lm.LanguageModelConfig` but `vocab` and `seed`), `training` (`batch`, in blocks, and the fields of
`training.options.TrainingSettings`), `track`, `seed`. What never changes a weight is given beside them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from geomix.errors import UserError
from geomix.language.corpus import count_blocks, read_summary
from geomix.language.task import LanguageTask
from geomix.mixers import Frames, PairMixer
from geomix.models.diagnostics import mixer_diagnostics
from geomix.models.transformer_lm import (
    LanguageModelConfig,
    TransformerLM,
    save_language_model,
    train_flops_per_token,
)
from geomix.training import devices
from geomix.training.averaging import Selection
from geomix.training.options import TrainerOptions, TrainingSettings
from geomix.training.record import About, LanguagePart, RunRecord
from geomix.training.run import Described, Job, Outputs, Trained, run
from geomix.training.seeding import seed_all

SELECTION = Selection(1, "dev_perplexity")
"""A language model is its one best epoch."""
NARROW_SINE = 0.05  # [Tested2026] counts the partners whose angle has a sine below this


def model_settings(settings: Mapping[str, Any], vocab: int) -> LanguageModelConfig:
    """The configuration of a run's model for a vocabulary of `vocab` pieces."""
    return LanguageModelConfig.from_dict({**settings["model"], "vocab": vocab, "seed": settings["seed"]})


def build_model(settings: Mapping[str, Any], vocab: int) -> TransformerLM:
    """The untrained model of a run: initial weights depend on its seed and configuration alone."""
    config = model_settings(settings, vocab)
    seed_all(settings["seed"], "initial weights")
    return TransformerLM(config)


def training_keys(training: Mapping[str, Any]) -> TrainingSettings:
    """What the loop reads of the settings' section; `batch` is the task's."""
    return TrainingSettings.from_dict({key: value for key, value in training.items() if key != "batch"})


def flush_denormals() -> None:
    """Probabilities of N(0, 1) embeddings are denormal numbers at first, which a CPU handles an order of magnitude slower."""
    torch.set_flush_denormal(True)


def train_arm(
    settings: Mapping[str, Any],
    data: str | Path,
    *,
    about: About,
    options: TrainerOptions,
    out: str | Path,
    state_root: str | Path = Path("state"),
    threads: int = 1,
    device: str = "auto",
) -> RunRecord:
    """Train one arm to the end, or go on where it was interrupted, and write what the train rule declares.

    Parameters
    ----------
    data : folder of the prepared corpus
    options : its selection is `SELECTION`
    state_root : the store (`training.store`); the state folder below it is named by the hash of settings and data
    out : folder of record.json, log.jsonl, diagnostics.json, model.safetensors, model.yaml: the epoch with the best validation perplexity
    """
    place, summary = devices.choose_device(device), read_summary(data)
    config = model_settings(settings, summary["vocabulary"])
    flops = train_flops_per_token(config)

    def make_task(model: TransformerLM) -> LanguageTask:
        batch, seed = settings["training"]["batch"], settings["seed"]
        return LanguageTask(
            data, positions=config.positions, batch=batch, seed=seed, device=place, flops_per_token=flops
        )

    job = Job(
        about=about,
        track=settings["track"],
        seed=settings["seed"],
        settings=settings,
        data_hashes=summary["hashes"],
        training=training_keys(settings["training"]),
        options=options,
        model=lambda: build_model(settings, summary["vocabulary"]),
        task=make_task,
        checkpoint_settings={**settings, "model": dataclasses.asdict(config)},
        device=place,
        threads=threads,
        prepare=flush_denormals,
        state_root=Path(state_root),
    )
    return run(job, Outputs(diagnose=_diagnostics, describe=_describe, save=save_language_model), Path(out))


def _describe(trained: Trained[LanguageTask]) -> Described:
    """What was trained on what, in the terms of language modelling."""
    task, model = trained.task, trained.model
    return Described(
        data=count_blocks(task.summary, model.config.positions),
        domain=LanguagePart(
            flops_per_token=task.flops_per_unit,
            tokens_per_second=round(trained.summary.rate, 1),
            best_epoch=trained.summary.best[0],
            perplexity={split: task.perplexity(model, split) for split in ("valid", "test")},
        ),
    )


def _diagnostics(start: TransformerLM, trained: Trained[LanguageTask]) -> dict[str, Any]:
    """Diagnostics of the first validation blocks, before and after training."""
    tokens = trained.task.in_order("valid")[0].inputs["tokens"]
    return {
        "start": partner_diagnostics(start, tokens.cpu()),
        "end": partner_diagnostics(trained.model, tokens),
    }


@torch.no_grad()
def partner_diagnostics(model: TransformerLM, tokens: torch.Tensor) -> list[dict[str, Any]]:
    """`models.diagnostics.mixer_diagnostics` of each layer with a pair mixer on tokens (B, T), in eval mode; [] without one.

    `narrow_share` is added: the share of partners whose angle has a sine below 0.05.
    """
    found: list[dict[str, Any]] = []

    def hook(mixer: PairMixer, arguments: tuple[torch.Tensor, Frames], output: torch.Tensor) -> None:
        entry = mixer_diagnostics(mixer, *arguments)
        found.append({"block": len(found), **entry, "narrow_share": _narrow_share(mixer, arguments[0])})

    with contextlib.ExitStack() as stack:
        for block in model.blocks:
            if isinstance(block.mixer, PairMixer):
                stack.callback(block.mixer.register_forward_hook(hook).remove)
        model.hidden(tokens)
    return found


def _narrow_share(mixer: PairMixer, x: torch.Tensor) -> float:
    z = torch.nn.functional.normalize(mixer.reduce(x).float(), dim=-1)
    pairs = [(z[:, :-offset], z[:, offset:]) for offset in mixer.offsets if offset < z.shape[1]]
    if not pairs:
        raise UserError(f"offsets {mixer.offsets} reach beyond blocks of {z.shape[1]} tokens: lengthen the blocks")
    # of unit vectors, the sine is the length of what b has beside its projection on a
    sines = [(b - (a * b).sum(-1, keepdim=True) * a).norm(dim=-1).flatten() for a, b in pairs]
    return float((torch.cat(sines) < NARROW_SINE).float().mean())
