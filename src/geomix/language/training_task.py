"""The language model as something to train: what the workflow's train rule calls.

Settings are the plain dictionary of `geomix.settings.language_training_settings`: `model` (fields of
`models.transformer_lm.LanguageModelConfig` but `vocab` and `seed`), `training` (`batch`, in blocks, and fields of
`training.loop.TrainingSettings`), `track`, `seed`. What never changes a weight is given beside them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from geomix.errors import UserError
from geomix.files import atomic_path, write_json
from geomix.language.corpus import count_blocks, read_blocks, read_summary
from geomix.language.perplexity import perplexities
from geomix.mixers import Frames, PairMixer
from geomix.models.diagnostics import mixer_diagnostics
from geomix.models.transformer_lm import (
    LanguageModelConfig,
    TransformerLM,
    parameter_count,
    save_language_model,
    train_flops_per_token,
)
from geomix.tensors import load_state
from geomix.training import devices
from geomix.training.averaging import Selection
from geomix.training.checkpoints import LAYOUT, Identity
from geomix.training.loop import Batch, Trainer, TrainingSettings
from geomix.training.progress import LOG, say
from geomix.training.record import training_record
from geomix.training.seeding import generator, seed_all
from geomix.training.store import Request, User, opened

SELECTION = Selection(1, "dev_perplexity")
"""A language model is its one best epoch."""
NARROW_SINE = 0.05  # the article counts the partners whose angle has a sine below this


class _Batches(Sequence[Batch]):
    """Batches of `size` blocks in a given order, each made when asked for; the last may be short."""

    def __init__(self, blocks: torch.Tensor, order: torch.Tensor, size: int) -> None:
        self._blocks, self._order, self._size = blocks, order, size

    def __len__(self) -> int:
        return -(-len(self._order) // self._size)

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(index)
        chosen = self._order[index * self._size : (index + 1) * self._size]
        blocks = self._blocks[chosen.to(self._blocks.device)].long()
        return Batch({"tokens": blocks[:, :-1], "targets": blocks[:, 1:]}, work=blocks[:, 1:].numel())


class LanguageTask:
    """Batches of token blocks and validation perplexity (a `training.loop.Task`).

    floor : cross-entropy in nats of the validation tokens under the training tokens' frequencies, which is what a model
        that has collapsed into a frequency table reaches.
    """

    unit = "tokens"
    smaller_batches = "lower language.training.batch"

    def __init__(
        self, data: str | Path, *, positions: int, batch: int, seed: int, device: torch.device, flops_per_token: float
    ) -> None:
        self.seed, self.batch, self.flops_per_unit = seed, batch, flops_per_token
        self.data, self.device = Path(data), device
        self.summary = read_summary(data)
        self.floor = self.summary["splits"]["valid"]["unigram_cross_entropy"]
        self._splits = {
            split: torch.from_numpy(read_blocks(data, split, positions)).to(device)
            for split in ("train", "valid", "test")
        }

    def batches(self, epoch: int) -> Sequence[Batch]:
        """All training blocks, in an order drawn from (seed, epoch); the last batch is short, as the recipe keeps it."""
        blocks = self._splits["train"]
        order = torch.randperm(len(blocks), generator=generator(self.seed, "order", epoch))
        return _Batches(blocks, order, self.batch)

    def largest(self) -> Sequence[Batch]:
        """Any full batch: all are of one size."""
        return [self.in_order("train")[0]]

    def describe(self, batch: Batch) -> str:
        """Size of a batch in words."""
        blocks, length = batch.inputs["tokens"].shape
        return f"{blocks} blocks of {length} tokens"

    def evaluate(self, model: TransformerLM) -> dict[str, float]:
        """Validation loss (nats a token) and perplexity: the mean over batches, by which epochs are chosen, and over tokens."""
        both = self.perplexity(model, "valid")
        return {
            "dev_loss": float(np.log(both["token"])),
            "dev_perplexity": both["batch_mean"],
            "dev_perplexity_token": both["token"],
        }

    @torch.no_grad()
    def perplexity(self, model: TransformerLM, split: str) -> dict[str, float]:
        """Both perplexities (`perplexity.perplexities`) of a model in eval mode on a split, blocks in order."""
        losses, tokens = [], []
        for batch in self.in_order(split):
            losses.append(model(**batch.inputs)["loss"])
            tokens.append(batch.work)
        return perplexities(torch.stack(losses).tolist(), tokens)

    def in_order(self, split: str) -> Sequence[Batch]:
        """All blocks of a split as they stand in the text."""
        blocks = self._splits[split]
        return _Batches(blocks, torch.arange(len(blocks)), self.batch)


def build_model(settings: Mapping[str, Any], vocab: int) -> TransformerLM:
    """The untrained model of a run: initial weights depend on its seed and configuration alone."""
    config = LanguageModelConfig.from_dict({**settings["model"], "vocab": vocab, "seed": settings["seed"]})
    seed_all(settings["seed"], "initial weights")
    return TransformerLM(config)


def train_arm(
    settings: Mapping[str, Any],
    data: str | Path,
    *,
    about: Mapping[str, Any],
    state_root: str | Path = Path("state"),
    out: str | Path,
    detect_after: int | None,
    save_minutes: float = 10.0,
    log_every: int = 50,
    threads: int = 1,
    device: str = "auto",
) -> dict[str, Any]:
    """Train one arm to the end, or go on where it was interrupted, and write what the train rule declares.

    Parameters
    ----------
    data : folder of the prepared corpus
    about : what the record says of the run beside the settings: run, arm, gated, unmatched
    state_root : the store (`training.store`); the state folder below it is named by the hash of settings and data
    detect_after : updates after which a run that learns nothing is stopped; None: never
    out : folder of record.json, log.jsonl, diagnostics.json, model.safetensors, model.yaml: the epoch with the best validation perplexity

    Returns
    -------
    The run record.
    """
    torch.set_num_threads(threads)
    # probabilities of N(0, 1) embeddings are denormal numbers at first, which a CPU handles an order of magnitude slower
    torch.set_flush_denormal(True)
    place = devices.choose_device(device)
    out, arm, seed = Path(out), about["arm"], settings["seed"]
    training = dict(settings["training"])
    batch = training.pop("batch")
    options = TrainingSettings.from_dict(
        {
            **training,
            **dataclasses.asdict(SELECTION),
            "detect_after": detect_after,
            "save_minutes": save_minutes,
            "log_every": log_every,
        }
    )
    summary = read_summary(data)
    model = build_model(settings, summary["vocabulary"])
    config = model.config
    task = LanguageTask(
        data,
        positions=config.positions,
        batch=batch,
        seed=seed,
        device=place,
        flops_per_token=train_flops_per_token(config),
    )
    hashes = summary["hashes"]
    user = User(about["run"], settings["track"], arm, seed)
    counts = ", ".join(f"{part['tokens']:,} {split}" for split, part in summary["splits"].items())
    say(
        f"{user.name}: {parameter_count(config):,} parameters; tokens {counts}; unigram entropy {summary['unigram_entropy']:.3f} nats; on {devices.device_name(place)}"
    )
    request = Request(settings, hashes, user, LAYOUT, SELECTION, options.schedule)
    with opened(Path(state_root), request) as found_state:
        state = found_state.folder
        identity = Identity(state.name, {**settings, "model": dataclasses.asdict(config), "hashes": hashes})
        run = Trainer(
            model, task, options, state_dir=state, identity=identity, seed=seed, device=place, name=user.name
        ).run()
        origin = found_state.finish(run.metrics, training_record(run, place, threads))
        best = run.best[0]
        load_state(model, load_file(state / LAYOUT.weights.format(best)))
    model.eval()

    tokens = task.in_order("valid")[0].inputs["tokens"]
    start = build_model(settings, summary["vocabulary"]).eval()
    found = {"start": partner_diagnostics(start, tokens.cpu()), "end": partner_diagnostics(model, tokens)}
    perplexity = {split: task.perplexity(model, split) for split in ("valid", "test")}
    write_json(out / "diagnostics.json", found)
    save_language_model(model, out)
    with atomic_path(out / "log.jsonl") as temporary:
        temporary.write_bytes((state / LOG).read_bytes())
    record = {
        "run": about["run"],
        "corpus": summary["name"],
        "track": settings["track"],
        "arm": arm,
        "seed": seed,
        "gated": bool(about.get("gated")),
        "unmatched": bool(about.get("unmatched")),
        "mixer": dict(settings["model"]["mixer"]),
        "parameters": parameter_count(config),
        "flops_per_token": task.flops_per_unit,
        "settings": dict(settings),
        "settings_hash": state.name,
        "data": count_blocks(summary, config.positions),
        "best_epoch": best,
        "perplexity": perplexity,
        "tokens_per_second": round(run.rate, 1),
        **origin,
    }
    write_json(out / "record.json", record)
    return record


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
