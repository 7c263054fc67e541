"""Phase 4: do the parts of a trained multivector network mean what their grades suggest? Each question is a test with nulls.

The models are phase 1's: rotor composition (`rotors_spin3`) and analogy. Nulls: the same network untrained (what the table gives by
construction) and trained under random signs (what training gives without the geometry); on composition also the dense network.

Each test has a number a model (smaller is better) and one rule, `statistics.geometry.judge`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geomix.algebra import Algebra
from geomix.algebra.operations import product, project, sandwich
from geomix.files import write_json
from geomix.statistics.geometry import judge
from geomix.studies.algebra.arms import AlgebraStack, Stack, build
from geomix.studies.algebra.representation import load_stack
from geomix.studies.algebra.tasks import TASKS, Draws, place, random_rotors
from geomix.training.record import job_record
from geomix.training.seeding import generator

UNTRAINED_SEEDS = list(range(100, 108))
CHAINS = (3, 5, 9, 17, 33)
GAINS = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
SAMPLES = 512
CL3 = Algebra(3)
EVEN = CL3.even


def run_tests(folder: str | Path, settings: Mapping[str, Any], out: str | Path) -> dict[str, Any]:
    """All tests on the models of phase 1 in `folder` (its representation/), written to the JSON file `out`.

    `settings` : seeds and tables of phase 1.
    """
    torch.set_num_threads(1)
    begun, used = time.perf_counter(), time.process_time()
    folder = Path(folder)
    load = lambda task, arm: load_stack(
        task,
        arm,
        list(settings["seeds"]),
        settings["tables"] if arm == "shuffled" else 1,
        folder / "representation" / task / f"{arm}.safetensors",
    )
    models = {
        task: {
            "trained": load(task, "clifford"),
            "untrained": build(TASKS[task], "clifford", UNTRAINED_SEEDS),
            "shuffled": load(task, "shuffled"),
            "dense": load(task, "dense"),
        }
        for task in ("rotors_spin3", "analogy")
    }
    with torch.no_grad():
        tests = {
            "direction": direction(models["analogy"]),
            "half_turn": half_turn(models["analogy"]),
            "plane": planes(models["rotors_spin3"]),
            "composition": composition(models["rotors_spin3"]),
            "intervention": intervention(models["rotors_spin3"]),
        }
    for test in tests.values():
        test["verdict"] = judge(*(test["values"][kind] for kind in ("trained", "untrained", "shuffled")))
    result = {
        "settings": dict(settings),
        "tests": tests,
        "record": job_record(begun, used, torch.device("cpu")),
    }
    write_json(out, result)
    return result


def _data(task: str, count: int, models: int) -> tuple[Tensor, Tensor]:
    """The same fresh samples for each of `models` seeds: inputs (R, inputs, dim, N) and multivectors (N, inputs, dim) in fp64."""
    x, _ = TASKS[task].draw(2**20, "test", count)
    return x.expand(models, *x.shape), x.permute(2, 0, 1).double()


def _stacks(models: Mapping[str, Stack]) -> list[tuple[str, AlgebraStack]]:
    return [(kind, stack) for kind, stack in models.items() if isinstance(stack, AlgebraStack)]


def _flat(values: Tensor) -> list[float]:
    return torch.nan_to_num(values.double(), nan=1e6, posinf=1e6).flatten().tolist()


def direction(models: Mapping[str, Stack]) -> dict[str, Any]:
    """Do vector components point somewhere? All inputs are turned by one rotor S; a direction turns along.

    The number: median angle in degrees, over samples and hidden channels of the last layer, between the grade-1 part of the turned
    input's hidden state and S applied to that of the original.
    """
    rotor = random_rotors(Draws(generator("algebra", "direction"), 1, 0), EVEN, 1)[0, 0]
    values = {}
    for kind, stack in _stacks(models):
        x, m = _data("analogy", SAMPLES, len(stack.seeds))
        turned = sandwich(CL3, rotor, m, EVEN).permute(1, 2, 0).float().expand_as(x)
        before, after = (stack.hidden(v)[-1][:, CL3.slice(1)] for v in (x, turned.contiguous()))  # (T, 3, R, C, N)
        moved = sandwich(CL3, rotor.float(), place(CL3, 1, before.movedim(1, -1)), EVEN)[..., CL3.slice(1)]
        cosine = torch.nn.functional.cosine_similarity(moved, after.movedim(1, -1), dim=-1)
        angle = torch.rad2deg(torch.acos(cosine.clamp(-1, 1)))
        values[kind] = _flat(angle.flatten(2).median(-1).values)
    return {"values": values, "unit": "degrees", "what": "angle between a hidden vector and where a turn of the inputs should take it"}  # fmt: skip


def _probe(h: Tensor, target: Tensor) -> Tensor:
    """Share of a target's variance that one weight a channel does not explain on fresh samples.

    h (T, k, R, C, N) components of a grade, target (k, N): weights by least squares on the first half, judged on the second -> (T, R).
    """
    half = h.shape[-1] // 2
    rows = h.permute(0, 2, 1, 4, 3).double()  # (T, R, k, N, C)
    fit, test = rows[..., :half, :].flatten(2, 3), rows[..., half:, :].flatten(2, 3)
    wanted = target.double()
    y, fresh = wanted[:, :half].reshape(-1, 1), wanted[:, half:].reshape(-1, 1)
    weights = torch.linalg.lstsq(fit, y.expand(*fit.shape[:2], *y.shape), driver="gelsd").solution
    return (test @ weights - fresh).square().sum((-2, -1)) / fresh.square().sum()


def half_turn(models: Mapping[str, Stack]) -> dict[str, Any]:
    """Does the analogy network pass through <(1+ba)c>_1, the vector that a one-sided product gives half way?

    The number: share of that vector which the grade-1 parts of the second layer, a weight a channel, do not explain.
    """
    values = {}
    for kind, stack in _stacks(models):
        x, m = _data("analogy", SAMPLES, len(stack.seeds))
        turn = product(CL3, m[:, 1], m[:, 0])
        turn[:, 0] += 1
        target = project(CL3, product(CL3, turn, m[:, 2]), 1)[:, CL3.slice(1)].T
        values[kind] = _flat(_probe(stack.hidden(x)[2][:, CL3.slice(1)], target))
    return {"values": values, "unit": "share not explained", "what": "the half-turned vector <(1+ba)c>_1, from hidden vectors"}  # fmt: skip


def planes(models: Mapping[str, Stack]) -> dict[str, Any]:
    """Do bivectors of the composition network hold planes of the problem, those of the partial products R2 R1 and R3 R2?

    The number: share of the bivectors of R2 R1 and R3 R2 that the first layer's bivectors, a weight a channel, do not explain (the
    smaller of the two: one route is enough). `pairs` has all six ordered products of two rotors.
    """
    values, pairs = {}, {}
    for kind, stack in _stacks(models):
        x, m = _data("rotors_spin3", SAMPLES, len(stack.seeds))
        h = stack.hidden(x)[1][:, EVEN.slice(2)]
        found = {
            f"R{i + 1}R{j + 1}": _probe(h, product(EVEN, m[:, i], m[:, j])[:, EVEN.slice(2)].T)
            for i in range(3)
            for j in range(3)
            if i != j
        }
        values[kind] = _flat(torch.minimum(found["R2R1"], found["R3R2"]))
        pairs[kind] = {name: float(v.median()) for name, v in found.items()}
    return {"values": values, "pairs": pairs, "unit": "share not explained", "what": "bivector of R2 R1 or R3 R2, from hidden bivectors"}  # fmt: skip


def composition(models: Mapping[str, Stack]) -> dict[str, Any]:
    """Do the rotors of the trained network compose? It is applied to its own output, two more rotors at a time.

    Outputs are scaled to unit rotors with a positive scalar part in between, as anybody would. The number: median angle in degrees
    between the composed rotation of 33 rotors and the true one; `curve` has all lengths.
    """
    longest = max(CHAINS)
    rotors = random_rotors(Draws(generator("algebra", "composition"), SAMPLES, 0), EVEN, longest)  # (N, n, 4)
    truth, lengths = rotors[:, 0], {}
    for i in range(1, longest):
        truth = product(EVEN, rotors[:, i], truth)
        lengths[i + 1] = truth
    values, curve = {}, {}
    for kind, stack in models.items():
        tables, seeds = stack.tables, len(stack.seeds)
        # each table needs its own running product: tables are run one by one as copies of the seeds
        state = rotors[:, 0].T.float().expand(tables, seeds, 4, SAMPLES)
        angles: dict[int, Tensor] = {}
        for i in range(1, longest, 2):
            pair = rotors[:, i : i + 2].permute(1, 2, 0).float()
            steps = [
                stack.forward(torch.cat((state[t].unsqueeze(1), pair.expand(seeds, 2, 4, SAMPLES)), 1))[t]
                for t in range(tables)
            ]
            state = torch.nn.functional.normalize(torch.stack(steps), dim=2)
            state = state * torch.where(state[:, :, :1] < 0, -1.0, 1.0)
            if i + 2 in CHAINS:
                cosine = (state.double() * lengths[i + 2].T).sum(2).abs().clamp(max=1)
                angles[i + 2] = torch.rad2deg(2 * torch.acos(cosine)).median(-1).values
        values[kind] = _flat(angles[longest])
        curve[kind] = {str(n): _flat(a) for n, a in angles.items()}
    return {"values": values, "curve": curve, "unit": "degrees", "what": f"rotation composed of {longest} rotors, against the true one"}  # fmt: skip


def intervention(models: Mapping[str, Stack]) -> dict[str, Any]:
    """Does a gain on the bivectors of the first layer do what geometry predicts?

    If the first layer holds rotors, a gain g on its grade 2 turns X into X_g = <X>_0 + g <X>_2, and the second layer composes what it is
    given: a R3_g (R2 R1)_g + (1 - a) (R3 R2)_g R1_g, with the share a of the two routes (unknown: one number a model, fitted on half the
    samples). The number: squared error of that prediction over the output's own squared change, mean over gains other than 1, on the other half; 1
    is what predicting no change scores.
    """
    values, curve, shares = {}, {}, {}
    for kind, stack in _stacks(models):
        x, m = _data("rotors_spin3", SAMPLES, len(stack.seeds))
        plain = stack.forward(x).double()
        scale = lambda r, g: torch.cat((r[..., :1], g * r[..., 1:]), -1)
        outs, routes = [], []
        for g in GAINS:

            def gain(layer: int, y: Tensor, g: float = g) -> Tensor:
                return torch.cat((y[:, :1], g * y[:, 1:]), 1) if layer == 0 else y

            outs.append(stack.forward(x, gain).double())
            r1, r2, r3 = m.unbind(1)
            first = product(EVEN, scale(r3, g), scale(product(EVEN, r2, r1), g))
            second = product(EVEN, scale(product(EVEN, r3, r2), g), scale(r1, g))
            routes.append((first.T, second.T))
        half = SAMPLES // 2
        changed = [i for i, g in enumerate(GAINS) if g != 1]
        # least squares for a: out - second = a (first - second)
        top = sum(((outs[i] - routes[i][1]) * (routes[i][0] - routes[i][1]))[..., :half].sum((-2, -1)) for i in changed)
        bottom = sum((routes[i][0] - routes[i][1])[..., :half].square().sum() for i in changed)
        share = (top / bottom)[..., None, None]
        errors = []
        for i, g in enumerate(GAINS):
            predicted = share * routes[i][0] + (1 - share) * routes[i][1]
            miss = (outs[i] - predicted)[..., half:].square().sum((-2, -1))
            change = (outs[i] - plain)[..., half:].square().sum((-2, -1))
            size = plain[..., half:].square().sum((-2, -1))
            errors.append(miss / (size if g == 1 else change))
        values[kind] = _flat(torch.stack([errors[i] for i in changed]).mean(0))
        curve[kind] = {f"{g:g}": _flat(e) for g, e in zip(GAINS, errors, strict=True)}
        shares[kind] = _flat(share)
    return {"values": values, "curve": curve, "route": shares, "unit": "error / change", "what": "effect of a gain on the first layer's bivectors"}  # fmt: skip
