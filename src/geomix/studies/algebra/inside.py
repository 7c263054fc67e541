"""Phase 4 in language and speech models: learned rotor planes, and the energy of each grade by layer ([Parslow2026], section 7).

*Planes*, of models whose queries and keys are turned by rotors of the position: how far the learned bivectors have left the plane they
started in, and what the model loses when their planes or their rates are changed after training. Controls: the same planes under other
names (a rotation of each channel's bivector together with its queries and keys, which must change nothing), random planes, and rates
dealt out anew. There are no rotors under random signs: without the algebra's own signs exp(-tB/2) does not keep lengths.

*Grades*, of models whose maps are algebra-valued: the share of each grade in what every such map gives, beside the share of its
components; nulls are the same models untrained and trained under random signs.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geomix.algebra import Algebra
from geomix.algebra.operations import sandwich_matrix
from geomix.algebra.rotors import exp
from geomix.files import write_json
from geomix.mixers.multivector_attention import MultivectorAttention
from geomix.models.config.maps import algebra_of
from geomix.models.layers.linear import MultivectorLinear
from geomix.models.layers.maps import AlgebraLinear
from geomix.settings import training_settings
from geomix.training.progress import say
from geomix.training.record import job_record
from geomix.training.seeding import generator

Loss = Callable[[nn.Module], float]


# -- planes -------------------------------------------------------------------------------------------------------------


def turned(model: nn.Module) -> list[MultivectorAttention]:
    """The attentions of a model that are turned by rotors of the position."""
    found = [m for m in model.modules() if isinstance(m, MultivectorAttention)]
    return [m for m in found if m.positions is not None]


def off_plane(learned: nn.Module, start: nn.Module) -> list[float]:
    """For each layer the share of the bivectors' squared length outside the planes that they started in."""
    shares = []
    for ours, first in zip(turned(learned), turned(start), strict=True):
        bivectors = ours.positions.bivectors.detach().double()
        plane = first.positions.bivectors.detach().abs() > 0
        shares.append(float(bivectors[~plane].square().sum() / bivectors.square().sum()))
    return shares


def _to_start(bivectors: Tensor, start: Tensor, _: torch.Generator) -> Tensor:
    return bivectors.norm(dim=1, keepdim=True) * torch.sign((bivectors * start).sum(1, keepdim=True)) * _unit(start)


def _to_random(bivectors: Tensor, start: Tensor, draw: torch.Generator) -> Tensor:
    return bivectors.norm(dim=1, keepdim=True) * _unit(
        torch.randn(bivectors.shape, generator=draw, dtype=bivectors.dtype)
    )


def _dealt_rates(bivectors: Tensor, start: Tensor, _: torch.Generator) -> Tensor:
    return _unit(bivectors) * bivectors.norm(dim=1, keepdim=True).roll(1, 0)


def _unit(bivectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(bivectors, dim=1)


CHANGES = {"start": _to_start, "random": _to_random, "rates": _dealt_rates}


@torch.no_grad()
def changed(model: nn.Module, start: nn.Module, change: str, seed: int) -> nn.Module:
    """A copy whose bivectors are put into the planes of the start or into random ones, or exchange their rates."""
    other, draw = copy.deepcopy(model), generator("algebra", "planes", change, seed)
    for ours, first in zip(turned(other), turned(start), strict=True):
        bivectors = ours.positions.bivectors
        bivectors.copy_(CHANGES[change](bivectors, first.positions.bivectors.to(bivectors), draw))
    return other


@torch.no_grad()
def renamed(model: nn.Module, seed: int) -> nn.Module:
    """A copy whose bivectors are turned by a random rotor a channel, and the queries and keys with them: the same function."""
    other, draw = copy.deepcopy(model), generator("algebra", "planes", "gauge", seed)
    for ours in turned(other):
        algebra, full = ours.algebra, ours.algebra.full
        planes = full.n * (full.n - 1) // 2
        rotors = exp(full, torch.randn(ours.channels, planes, generator=draw, dtype=torch.float64))
        matrices = sandwich_matrix(full, rotors, full.even)  # (channels, dim, dim)
        two = full.slice(2)
        bivectors = ours.positions.bivectors
        bivectors.copy_(torch.einsum("cij,cj->ci", matrices[:, two, two], bivectors.double()))
        kept = torch.as_tensor(full.conversion(algebra)[0])
        own = matrices[:, kept][:, :, kept]
        for parameter in (ours.qkv.weight, ours.qkv.bias):
            rows = parameter.view(3, ours.heads, ours.channels, algebra.dim, -1)
            rows[:2] = torch.einsum("cij,bhcjw->bhciw", own, rows[:2].double()).to(rows)
    return other


def planes(model: nn.Module, start: nn.Module, loss: Loss, seed: int) -> dict[str, Any]:
    """`off_plane` a layer, and the loss (nats) that each change after training adds; `gauge` is what must be 0."""
    own = loss(model)
    costs = {change: loss(changed(model, start, change, seed)) - own for change in CHANGES}
    return {"off_plane": off_plane(model, start), "costs": costs, "gauge": loss(renamed(model, seed)) - own}


# -- grades -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def grade_shares(model: nn.Module, run: Callable[[nn.Module], Any]) -> dict[str, list[float]]:
    """Share of each grade in the squared outputs of every algebra-valued map of a Euclidean algebra, by its name in the model."""
    spec = next(s for s in (model.config.replacements.projections, model.config.replacements.feed_forward) if s)
    algebra, found, hooks = algebra_of(spec), {}, []
    grades = torch.tensor(algebra.grade)

    def note(name: str) -> Callable:
        def hook(_: nn.Module, __: Any, y: Tensor) -> None:
            energy = y.unflatten(-1, (-1, algebra.dim)).double().square().flatten(0, -2).mean(0)
            shares = torch.zeros(len(algebra.grades), dtype=torch.float64).index_add_(0, grades, energy)
            found[name] = (shares / shares.sum()).tolist()

        return hook

    for name, module in model.named_modules():
        if isinstance(module, AlgebraLinear | MultivectorLinear):
            hooks.append(module.register_forward_hook(note(name)))
    run(model)
    for hook in hooks:
        hook.remove()
    return found


def departure(shares: Mapping[str, Sequence[float]], algebra: Algebra) -> float:
    """Mean over maps of the total variation between the grades' shares and those of their components: 0 where grades mean nothing."""
    equal = torch.bincount(torch.tensor(algebra.grade)).double() / algebra.dim
    return float(torch.stack([(torch.tensor(s).double() - equal).abs().sum() / 2 for s in shares.values()]).mean())


# -- the job ------------------------------------------------------------------------------------------------------------


def look_inside(studies: Mapping[str, Sequence[str]], files: Mapping[str, Any], out: str | Path) -> dict[str, Any]:
    """Both questions on every model, written to the JSON file `out`.

    studies : phase -> folders of trained models, `<arm>/seed<n>` at their end; files : `text`, a prepared file of it; `speech`, the prepared files, and
        `study`, the settings of the speech study
    """
    torch.set_num_threads(1)
    begun, used = time.perf_counter(), time.process_time()
    found: dict[str, Any] = {"planes": {}, "grades": {}}
    for phase, folders in studies.items():
        opened = _speech if phase == "speech" else _language
        for folder in map(Path, folders):
            arm, seed = folder.parent.name, int(folder.name.removeprefix("seed"))
            model, start, loss, run = opened(folder, files)
            if turned(model):
                entry = planes(model, start, loss, seed)
                found["planes"].setdefault(f"{phase}/{arm}", []).append(entry)
            if any(isinstance(m, AlgebraLinear | MultivectorLinear) for m in model.modules()):
                replaced = model.config.replacements
                algebra = algebra_of(replaced.projections or replaced.feed_forward)
                shares = {name: grade_shares(m, run) for name, m in (("trained", model), ("untrained", start))}
                entry = {name: {"shares": s, "departure": departure(s, algebra)} for name, s in shares.items()}
                found["grades"].setdefault(f"{phase}/{arm}", []).append(entry)
            say(f"inside {phase}/{arm}/seed{seed}")
    result = {**found, "record": job_record(begun, used, torch.device("cpu"))}
    write_json(out, result)
    return result


def _language(folder: Path, files: Mapping[str, Any]):
    """The trained model, the same untrained, its loss on the validation text, and what runs it on a batch."""
    from geomix.language.task import LanguageTask
    from geomix.models.transformer_lm import TransformerLM, load_language_model
    from geomix.training.seeding import seed_all

    model = load_language_model(folder)
    seed_all(model.config.seed, "initial weights")
    start = TransformerLM(model.config).eval()
    data = Path(files["text"]).parent
    task = LanguageTask(
        data, positions=model.config.positions, batch=16, seed=0, device=torch.device("cpu"), flops_per_token=0.0
    )
    loss = lambda m: math.log(task.perplexity(m, "valid")["token"])
    return model, start, loss, lambda m: m.hidden(task.in_order("valid")[0].inputs["tokens"])


def _speech(folder: Path, files: Mapping[str, Any]):
    """The same of a speech model; its loss is the mean CTC loss of the task's largest batches, in eval mode."""
    from geomix.models.saved import load_model
    from geomix.speech.prepared import PreparedData
    from geomix.speech.training import make_task
    from geomix.training.seeding import seed_all

    model = load_model(folder)
    seed_all(model.config.seed, "initial weights")
    start = model.config.build().eval()
    start.mean.copy_(model.mean)
    start.std.copy_(model.std)
    data = PreparedData.of(files["speech"])
    settings = training_settings(files["study"], folder.parent.name, model.config.seed, "own")
    task = make_task(settings, data, model, torch.device("cpu"), 0.0)
    batches = [batch.inputs for batch in task.largest()]

    @torch.no_grad()
    def loss(m: nn.Module) -> float:
        return sum(float(m(**inputs)["loss"]) for inputs in batches) / len(batches)

    return model, start, loss, lambda m: m(**batches[0])
