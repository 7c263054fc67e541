"""The rules of the algebra study, written before it ran: does the geometry earn its place on a task (phase 1)?

The question is put to the median over seeds of each table's test error. With F the task's factor:

- an arm's table *separates* when its error is at least F times Clifford's, *wins* when Clifford's is at least F times its own, and
  *ties* otherwise.
- **geometry earns its place**: every shuffled table separates, the gauge tables (the same algebra under other names) tie, the
  all-plus table separates where the task declared it a negative control, and Clifford's error is below that of the dense arm
  at the same budget.
- **tie**: no shuffled table separates or wins, and neither does the all-plus table: the sharing of parameters does it all.
- **control uninformative**: what was meant to be decided by the shuffle cannot be: a gauge table does not tie (the comparison
  itself is broken), shuffled tables disagree with each other (the task uses so few signs that some draws have them right), or
  the all-plus table fails where every shuffled one ties (orientation matters, and the shuffle does not remove it).
- **geometry loses**: every shuffled table wins, or all separate and the dense arm is still no worse than Clifford. The claim is
  then to be revised, as the article demands.

Differences below F are ties whatever their interval says: F is what was called a difference worth having (10 for errors that
training can take to zero, 1.5 for the plane, whose noise bounds every arm, 1.1 for the nulls).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

PHASE_1 = __doc__.split("\n\n", 1)[1].strip()  # the rule in words, which the page of phase 1 quotes
EARNS, TIE, UNINFORMATIVE, LOSES = (
    "geometry earns its place",
    "tie",
    "control uninformative",
    "geometry loses",
)
# an error of zero on n test samples is known to about half a sample
FLOORS = {"nmse": 1e-12, "sign": 0.5 / 1024, "angle": 1e-3}
LEAST_TABLES = 8
# from here on a model has hardly learned the task: half of the target's variance, chance being half of the signs
UNLEARNED = {"nmse": 0.5, "sign": 0.4, "angle": 60.0}


@dataclass(frozen=True)
class Verdict:
    """`verdict`, one of the four above; `reason`, a clause; `separated`, `tables`: shuffled tables that separate, of how many."""

    verdict: str
    reason: str
    separated: int
    tables: int
    warnings: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        return f"{self.verdict[0].upper()}{self.verdict[1:]}: {self.reason}."


def table_medians(errors: Sequence[Sequence[float]], metric: str = "nmse") -> np.ndarray:
    """(tables,) median over seeds of errors (tables, seeds), never below the floor of the metric."""
    return np.maximum(np.median(np.asarray(errors, float), axis=1), FLOORS[metric])


def outcome(error: float, clifford: float, factor: float) -> str:
    """`worse` (separates), `better` (wins) or `tie`, of an error beside Clifford's."""
    return "worse" if error >= factor * clifford else "better" if clifford >= factor * error else "tie"


def decide(
    errors: Mapping[str, Sequence[Sequence[float]]], *, factor: float, all_plus_fails: bool, metric: str = "nmse"
) -> Verdict:
    """The verdict on a task.

    errors : arm -> (tables, seeds) test errors; clifford, shuffled, gauge, all_plus and dense are read.
    factor, all_plus_fails : as the task declared them.
    """
    medians = {
        arm: table_medians(errors[arm], metric) for arm in ("clifford", "shuffled", "gauge", "all_plus", "dense")
    }
    clifford = float(medians["clifford"][0])
    of = lambda arm: [outcome(float(e), clifford, factor) for e in medians[arm]]
    shuffled, gauge, (all_plus,), (dense,) = (of(arm) for arm in ("shuffled", "gauge", "all_plus", "dense"))
    worse, better, count = shuffled.count("worse"), shuffled.count("better"), len(shuffled)
    ratios = medians["shuffled"] / clifford
    spread = f"{ratios.min():.3g} to {ratios.max():.3g} times Clifford's error, {np.median(ratios):.3g} in the median"
    warnings = (f"{count} shuffled tables, {LEAST_TABLES} are the protocol's least",) if count < LEAST_TABLES else ()
    least = min(float(m.min()) for m in medians.values())
    if least >= UNLEARNED[metric]:
        warnings += (f"no arm has learned the task: the least error is {least:.2g}",)
    verdict = lambda name, reason: Verdict(name, reason, worse, count, warnings)

    if any(g != "tie" for g in gauge):
        return verdict(
            UNINFORMATIVE,
            f"{sum(g != 'tie' for g in gauge)} of {len(gauge)} gauge tables differ from Clifford by {factor:g} or more, though they "
            "are the same algebra",
        )
    if worse == count:
        if all_plus_fails and all_plus != "worse":
            return verdict(
                UNINFORMATIVE,
                "every shuffled table separates, but the all-plus table, which cannot do the task, does not",
            )
        if medians["dense"][0] <= clifford:
            return verdict(
                LOSES,
                f"all {count} shuffled tables are worse ({spread}), but so is Clifford than the dense arm "
                f"({clifford:.3g} against {medians['dense'][0]:.3g})",
            )
        return verdict(EARNS, f"all {count} shuffled tables have at least {factor:g} times its error ({spread})")
    if better == count:
        return verdict(LOSES, f"all {count} shuffled tables are better ({spread})")
    if worse or better:
        return verdict(
            UNINFORMATIVE,
            f"the shuffled tables disagree, {worse} of {count} worse by {factor:g} and {better} better ({spread})",
        )
    if all_plus == "worse" and all_plus_fails:
        return verdict(
            UNINFORMATIVE,
            f"all {count} shuffled tables tie ({spread}) while the all-plus table fails: the task needs orientation, and random "
            "signs keep enough of it",
        )
    if all_plus != "tie" and not all_plus_fails:
        return verdict(
            UNINFORMATIVE, f"all {count} shuffled tables tie ({spread}), but the all-plus table is {all_plus}"
        )
    beside = {"better": "; the dense arm is better than all of them", "worse": "", "tie": ""}[dense]
    return verdict(TIE, f"{count} of {count} shuffled tables within a factor of {factor:g} ({spread}){beside}")


class Expectation(Protocol):
    """What was expected of an arm beside Clifford, `worse`, `tie` or `better`, and why."""

    arm: str
    outcome: str
    why: str


@dataclass(frozen=True)
class Found:
    """An expectation beside what was found; `ratios`: each table's error in multiples of Clifford's; `departs`: not as expected."""

    arm: str
    expected: str
    found: str
    ratios: list[float]
    why: str
    departs: bool


def compare_expectations(
    expected: Iterable[Expectation], errors: Mapping[str, Sequence[Sequence[float]]], *, factor: float, metric: str
) -> list[Found]:
    """Each expectation of a task beside what was found.

    An arm of several tables is `worse` (or `tie`, `better`) when every table is, else `mixed`. Arms that did not run are left out.
    """
    clifford = float(table_medians(errors["clifford"], metric)[0])
    rows = []
    for expectation in expected:
        if expectation.arm not in errors:
            continue
        medians = table_medians(errors[expectation.arm], metric)
        outcomes = {outcome(float(e), clifford, factor) for e in medians}
        found = outcomes.pop() if len(outcomes) == 1 else "mixed"
        ratios = (medians / clifford).tolist()
        departs = found != expectation.outcome
        rows.append(Found(expectation.arm, expectation.outcome, found, ratios, expectation.why, departs))
    return rows


LEARNED, CONSTRUCTED, NULL = "learned and geometric", "by construction", "not distinguished from the null"
MARGIN = 2.0
RESOLUTION = 1e-3  # numbers below it are rounding: neither degrees nor shares are known better in fp32


def judge(trained: Sequence[float], untrained: Sequence[float], shuffled: Sequence[float]) -> str:
    """The rule of phase 4 on one number a model, smaller is better, against the two nulls.

    `LEARNED`: every trained Clifford model is at least `MARGIN` times as good as every model of both nulls; `CONSTRUCTED`: as good
    against the random signs, but the untrained network has the property too; `NULL`: anything else.
    """
    worst = max(*trained, RESOLUTION)
    beats = lambda null: worst * MARGIN <= min(null)
    return NULL if not beats(shuffled) else LEARNED if beats(untrained) else CONSTRUCTED


BETTER, WORSE = "better", "worse"
COMPONENT_EARNS, COMPONENT_SHARES = EARNS, "sharing of numbers, not geometry"
COMPONENT_ONLY, COMPONENT_LOSES = "geometry, but a scalar form is no worse", "geometry loses"
COMPONENT_BROKEN, COMPONENT_OPEN = UNINFORMATIVE, "not told apart"
COMPONENT_RULE = f"""Each contrast is that of the language study (95 % t-interval of the difference of mean log perplexities, equal where the 90 %
interval lies within the margin). A component is judged beside the same under random signs and beside the scalar forms of its budget:

- *{COMPONENT_BROKEN}*: the same algebra under other names is better or worse;
- *{COMPONENT_EARNS}*: better than under random signs and than every scalar form;
- *{COMPONENT_ONLY}*: better than under random signs, but not than every scalar form;
- *{COMPONENT_LOSES}*: worse than under random signs, or not better than them and worse than a scalar form;
- *{COMPONENT_SHARES}*: not better than under random signs (or without signs to draw), better than every scalar form;
- *{COMPONENT_OPEN}*: anything else."""


def decide_component(scalars: Sequence[str], shuffled: str | None = None, gauge: str | None = None) -> str:
    """The rule of phase 2 (`COMPONENT_RULE`): what each contrast says of the component, `better`, `worse` or anything else."""
    if gauge in (BETTER, WORSE):
        return COMPONENT_BROKEN
    above = all(said == BETTER for said in scalars)
    if shuffled == BETTER:
        return COMPONENT_EARNS if above else COMPONENT_ONLY
    if shuffled == WORSE or WORSE in scalars:
        return COMPONENT_LOSES
    return COMPONENT_SHARES if above else COMPONENT_OPEN


def enough(errors: Mapping[str, float], factor: float) -> str:
    """The first of some truncations, in order, whose error is below `factor` times the least of all: what needs no more grades."""
    least = min(errors.values())
    return next(name for name, error in errors.items() if error < factor * max(least, FLOORS["nmse"]))


def stops_separating(separated: Mapping[str, tuple[int, int]]) -> str | None:
    """The last of some truncations, in order of rising grades, at which (tables worse, tables) are not all worse; None for none:
    below it a random table does as well as the truncated one in at least one draw."""
    tied = [name for name, (worse, tables) in separated.items() if worse < tables]
    return tied[-1] if tied else None


PLANES_LEARNED, RATES_LEARNED, PLANES_IDLE = "planes are learned", "rates, not planes", "neither planes nor rates"
NATS = 0.01
PLANES_RULE = f"""A change matters where it adds at least {NATS} nats to the loss of every model:

- *{PLANES_LEARNED}*: putting the bivectors back into the planes that they started in matters, and so do random planes;
- *{RATES_LEARNED}*: the former does not matter, and dealing out the rates anew does;
- *{PLANES_IDLE}*: anything else;
- *{UNINFORMATIVE}*: the same planes under other names change the loss by {NATS} nats or more, though they are the same model."""


def judge_planes(costs: Sequence[Mapping[str, float]], gauge: Sequence[float]) -> str:
    """`PLANES_RULE` on the nats that `start`, `random` and `rates` add to each model's loss, and that other names do."""
    if max(map(abs, gauge)) >= NATS:
        return UNINFORMATIVE
    matters = lambda change: all(cost[change] >= NATS for cost in costs)
    if matters("start") and matters("random"):
        return PLANES_LEARNED
    return RATES_LEARNED if not matters("start") and matters("rates") else PLANES_IDLE


def judge_grades(trained: Sequence[float], untrained: Sequence[float], shuffled: Sequence[float]) -> str:
    """Phase 4's rule (`judge`) on departures of grade shares from those of the components, of which more is better."""
    worth = lambda values: [1 / max(value, RESOLUTION) for value in values]
    return judge(worth(trained), worth(untrained), worth(shuffled))
