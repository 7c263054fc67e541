"""The decision rule on made-up results: each verdict, and what it must not be fooled by."""

import pytest

from geomix.settings.algebra_tasks import DECLARED as TASKS
from geomix.statistics.geometry import (
    CONSTRUCTED,
    EARNS,
    LEARNED,
    LOSES,
    NULL,
    TIE,
    UNINFORMATIVE,
    compare_expectations,
    decide,
    judge,
)

SEEDS = 3
GOOD, BAD = [1e-3] * SEEDS, [5e-2] * SEEDS


def made_up(**arms):
    """Results of a task where geometry wins cleanly, but for the arms that are given."""
    return {
        "clifford": [GOOD],
        "shuffled": [[2e-2, 3e-2, 9e-2]] * 8,
        "gauge": [GOOD, [1.2e-3, 8e-4, 1e-3]],
        "all_plus": [BAD],
        "dense": [BAD],
        **arms,
    }


def verdict_of(all_plus_fails=True, factor=10.0, metric="nmse", **arms):
    return decide(made_up(**arms), factor=factor, all_plus_fails=all_plus_fails, metric=metric)


def test_geometry_earns_its_place_when_every_table_is_worse():
    verdict = verdict_of()
    assert (verdict.verdict, verdict.separated, verdict.tables) == (EARNS, 8, 8)
    assert verdict.sentence == (
        "Geometry earns its place: all 8 shuffled tables have at least 10 times its error (30 to 30 times Clifford's "
        "error, 30 in the median)."
    )
    # one lucky or unlucky seed decides nothing: medians do
    assert verdict_of(shuffled=[[1e-6, 3e-2, 9e-2]] * 8).verdict == EARNS
    assert verdict_of(clifford=[[1e-3, 1e-3, 9.0]]).verdict == EARNS
    # a task that the all-plus table may do asks nothing of it
    assert verdict_of(all_plus_fails=False, all_plus=[GOOD]).verdict == EARNS


def test_tie_when_no_table_differs():
    null = {
        "shuffled": [[1.02] * 3, [0.97] * 3] * 4,
        "clifford": [[1.0] * 3],
        "gauge": [[1.0] * 3],
        "all_plus": [[1.0] * 3],
    }
    verdict = verdict_of(factor=1.1, all_plus_fails=False, **null, dense=[[0.1] * 3])
    assert verdict.verdict == TIE and "the dense arm is better than all of them" in verdict.reason
    # the all-plus table too must tie: a task that it cannot do is no null
    assert verdict_of(factor=1.1, **{**null, "all_plus": [[2.0] * 3]}).verdict == UNINFORMATIVE


@pytest.mark.parametrize(
    "arms, reason",
    [
        ({"shuffled": [GOOD] * 3 + [BAD] * 5}, "disagree, 5 of 8"),
        ({"shuffled": [GOOD] * 7 + [BAD]}, "disagree, 1 of 8"),
        ({"gauge": [GOOD, BAD]}, "1 of 2 gauge tables differ"),
        ({"shuffled": [GOOD] * 8}, "random signs keep enough"),
        ({"all_plus": [GOOD]}, "which cannot do the task, does not"),
    ],
)
def test_the_control_may_say_nothing(arms, reason):
    verdict = verdict_of(**arms)
    assert verdict.verdict == UNINFORMATIVE and reason in verdict.reason


def test_geometry_may_lose():
    assert verdict_of(shuffled=[[1e-5] * SEEDS] * 8).verdict == LOSES
    assert verdict_of(dense=[[5e-4] * SEEDS]).verdict == LOSES


def test_few_tables_are_named_and_a_perfect_score_is_no_infinite_ratio():
    assert verdict_of(shuffled=[BAD] * 4).warnings == ("4 shuffled tables, 8 are the protocol's least",)
    perfect = verdict_of(metric="sign", clifford=[[0.0] * 3], gauge=[[0.0] * 3], shuffled=[[0.001] * 3] * 8)
    # one wrong sign in 1,024 beside none is a tie
    assert perfect.verdict == UNINFORMATIVE and perfect.separated == 0


def test_a_task_that_no_arm_has_learned_is_named():
    lost = {arm: [[0.9] * SEEDS] * (8 if arm == "shuffled" else 1) for arm in made_up()}
    assert verdict_of(**lost).warnings == ("no arm has learned the task: the least error is 0.9",)
    assert verdict_of().warnings == ()


def test_departures_from_what_was_expected():
    task = TASKS["rotors_spin3"]
    found = compare_expectations(task.expected, made_up(quaternion=[BAD]), factor=task.factor, metric=task.metric)
    rows = {row.arm: row for row in found}
    assert not rows["shuffled"].departs and rows["gauge"].found == "tie"
    assert rows["quaternion"].departs and rows["quaternion"].found == "worse"
    assert "other_signature" not in rows  # did not run


def test_interpretability_needs_both_nulls():
    assert judge([1.0, 2.0], untrained=[9.0, 4.0], shuffled=[8.0]) == LEARNED
    assert judge([1.0, 2.0], untrained=[9.0, 3.9], shuffled=[8.0]) == CONSTRUCTED
    assert judge([1.0, 2.0], untrained=[9.0], shuffled=[3.0]) == NULL
    assert judge([0.0], untrained=[0.0], shuffled=[40.0]) == CONSTRUCTED  # equal up to rounding is not learned
