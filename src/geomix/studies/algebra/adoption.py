"""Staged adoption ([Parslow2026], sections 6.3 and 6.4): multivector maps are inserted into trained scalar models, which train on.

The scalar models are phase 2's baselines. A feed-forward module of width D and inner width F becomes adapter, map of D to F channels,
GELU on every coefficient, map of F to D channels, adapter: each scalar is the grade 0 of a multivector of Cl(3)'s even part, adapters
start as the identity on it and maps with the scalar weights on grade 0, so that without noise the model is the trained one, number
for number. Every arm then takes the same updates on the same batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geomix.algebra import Algebra
from geomix.files import write_json
from geomix.language.task import LanguageTask
from geomix.language.training import training_keys
from geomix.models.layers.activations import ComponentActivation
from geomix.models.layers.adapters import FromMultivector, ToMultivector, initialise_from_scalar
from geomix.models.layers.linear import MultivectorLinear
from geomix.models.transformer_lm import TransformerLM, load_language_model
from geomix.seeds import derive_seed
from geomix.settings.algebra_layers import ADOPTED, Adopted
from geomix.studies.algebra.jobs import step_costs
from geomix.tensors import drawn_apart
from geomix.training.progress import say
from geomix.training.record import job_record
from geomix.training.step import make_optimizer, training_step

ALGEBRA = Algebra(3).even
CPU = torch.device("cpu")


class Inserted(nn.Module):
    """A trained feed-forward module as multivector maps between adapters; the same function as long as `noise` is 0."""

    def __init__(self, scalar: nn.Sequential, table: Any = None, noise: float = 1e-3, scratch: bool = False) -> None:
        super().__init__()
        first, second = scalar[0], scalar[2]
        width, inner = first.in_features, first.out_features
        self.into, self.out = ToMultivector(ALGEBRA, width, width, (0,)), FromMultivector(ALGEBRA, width, width)
        self.first = MultivectorLinear(ALGEBRA, width, inner, table=table)
        self.second = MultivectorLinear(ALGEBRA, inner, width, table=table)
        self.activation = ComponentActivation()
        with torch.no_grad():
            self.into.linear.weight.copy_(torch.eye(width))
            reads_scalars = torch.zeros(width, width, ALGEBRA.dim)
            reads_scalars[..., 0] = torch.eye(width)
            self.out.linear.weight.copy_(reads_scalars.flatten(1))
            for adapter in (self.into, self.out):
                adapter.linear.bias.zero_()
        if not scratch:
            for ours, theirs in ((self.first, first), (self.second, second)):
                initialise_from_scalar(ours, theirs.weight, theirs.bias, noise)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to the same."""
        return self.out(self.second(self.activation(self.first(self.into(x)))))


@torch.no_grad()
def widened(scalar: nn.Sequential, parameters: int) -> nn.Sequential:
    """The same function with further inner units, whose outputs start at 0, up to a number of parameters."""
    first, second = scalar[0], scalar[2]
    width, old = first.in_features, first.out_features
    inner = max(old, round((parameters - width) / (2 * width + 1)))
    wide = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
    nn.init.normal_(wide[0].weight, std=float(first.weight.std()))
    nn.init.zeros_(wide[0].bias)
    nn.init.zeros_(wide[2].weight)
    wide[0].weight[:old], wide[0].bias[:old] = first.weight, first.bias
    wide[2].weight[:, :old], wide[2].bias[:] = second.weight, second.bias
    return wide


def insert(model: TransformerLM, arm: Adopted, seed: int, blocks: Sequence[int], noise: float) -> None:
    """Put an arm's feed-forward modules in the place of the trained ones of some blocks; all drawn from (seed, block)."""
    table = ALGEBRA.product()
    if arm.table == "shuffled":
        table = table.shuffled(derive_seed("algebra", "adoption", seed) % 2**32)
    for index in blocks:
        block = model.blocks[index]
        with drawn_apart(seed, "adoption", index):
            if arm.kind == "multivector":
                block.ff = Inserted(block.ff, table, noise, arm.scratch)
            elif arm.kind == "widened":
                block.ff = widened(block.ff, sum(p.numel() for p in Inserted(block.ff).parameters()))


def continue_training(
    model: TransformerLM, task: LanguageTask, training: Mapping[str, Any], updates: int, after: Callable[[int], bool]
) -> None:
    """So many updates of AdamW at a constant rate; where `after(update)` says that the model has changed, a new optimiser starts."""
    settings = training_keys({**training, "schedule": "constant"})
    model.train()
    done, epoch, optimizer = 0, 0, None
    while done < updates:
        epoch += 1
        for batch in task.batches(epoch):
            if after(done) or optimizer is None:
                optimizer = make_optimizer(model, settings, CPU)
            training_step(model, batch, settings)
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip or float("inf"))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done += 1
            if done == updates:
                break
    model.eval()


@dataclass(frozen=True)
class Source:
    """A trained scalar model: its seed and its folder."""

    seed: int
    folder: Path


def adopt(
    name: str, source: Source, data: Path, training: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """One arm from one trained model: test perplexity `trained`, `inserted` (before any update) and `final`, sizes and step costs."""
    arm, model = ADOPTED[name], load_language_model(source.folder)
    training = {**training, "learning_rate": settings["learning_rate"], "learning_rate_by_grade": list(arm.by_grade)}
    task = LanguageTask(
        data,
        positions=model.config.positions,
        batch=training["batch"],
        seed=source.seed,
        device=CPU,
        flops_per_token=0.0,
    )
    test = lambda: task.perplexity(model.eval(), "test")["batch_mean"]
    trained, blocks = test(), list(range(len(model.blocks)))
    first = blocks[: -(-len(blocks) // 2)] if arm.staged else blocks
    insert(model, arm, source.seed, first, settings["noise"])
    inserted = test()

    def after(update: int) -> bool:
        if not arm.staged or update != settings["updates"] // 2:
            return False
        insert(model, arm, source.seed, blocks[len(first) :], settings["noise"])
        return True

    continue_training(model, task, training, settings["updates"], after)
    final = test()
    return {
        "trained": trained,
        "inserted": inserted,
        "final": final,
        "parameters": sum(p.numel() for p in model.parameters()),
        **step_costs(model.train(), task.largest()[0], training_keys(training), 5),
    }


def run_adoption(
    folders: Sequence[str | Path],
    data: str | Path,
    training: Mapping[str, Any],
    settings: Mapping[str, Any],
    out: str | Path,
) -> dict[str, Any]:
    """Every arm from every trained scalar model (`folders` end in seed<n>), written to the JSON file `out`.

    data : the prepared text; training : the section that trained the models; settings : `algebra.layers` of the configuration
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    begun, used = time.perf_counter(), time.process_time()
    sources = [Source(int(Path(f).name.removeprefix("seed")), Path(f)) for f in folders]
    arms: dict[str, list[dict[str, Any]]] = {}
    for name in settings["adopted"]:
        arms[name] = [adopt(name, source, Path(data), training, settings) for source in sources]
        say(f"adoption: {name}: perplexity {sum(a['final'] for a in arms[name]) / len(sources):.2f}")
    found = {"settings": dict(settings), "arms": arms, "record": job_record(begun, used, CPU)}
    write_json(out, found)
    return found
