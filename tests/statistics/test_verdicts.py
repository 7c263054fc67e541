"""Verdicts of a contrast, and what its speakers and seeds could have shown."""

import csv

import numpy as np
import pytest
from scipy import stats

from geomix.benchmarks.verdicts import Truth, simulate
from geomix.statistics.intervals import crossed_t_interval, linear_t_interval, t_interval
from geomix.statistics.verdicts import components, smallest_difference, smallest_margin, verdict_of
from tests.conftest import ROOT

SEEDS = (3, 3)


@pytest.mark.parametrize(
    ("estimate", "margin", "verdict"),
    [
        (3.0, None, "b better"),
        (-3.0, 1.0, "a better"),
        (0.25, 1.0, "b better (within the margin)"),
        (0.1, 1.0, "equal"),
        (0.1, None, "cannot tell"),
        (0.1, 0.2, "cannot tell"),
    ],
)
def test_verdicts_follow_from_both_intervals(estimate, margin, verdict):
    t = t_interval(estimate, 0.1**2, 10)  # 95 % +-0.223, 90 % +-0.181
    assert verdict_of(t, margin=margin, seeds=SEEDS, speakers=10) == verdict


def test_what_gives_no_verdict_says_so():
    t = t_interval(3.0, 0.01, 10)
    assert verdict_of(t, margin=1.0, seeds=(3, 1), speakers=10) == "these two models only"
    assert verdict_of(t, margin=1.0, seeds=SEEDS, speakers=2) == "no verdict"
    assert verdict_of(t, margin=1.0, seeds=SEEDS) == "b better"  # a metric without speakers
    constant = t_interval(3.0, 0.0, 10)  # differences that do not vary give no certainty
    assert np.isnan(constant.p) and verdict_of(constant, margin=1.0, seeds=SEEDS, speakers=10) == "no verdict"


def test_smallest_difference_is_found_with_80_percent():
    """Against statsmodels' textbook value: 20 pairs, sd 1, two-sided 5 %: 0.6604 (G*Power 3.1)."""
    assert smallest_difference(1 / np.sqrt(20), 19) == pytest.approx(0.6604, abs=2e-3)
    critical = stats.t.ppf(0.975, 4)
    shift = smallest_difference(1.0, 4)
    assert stats.nct.sf(critical, 4, shift) + stats.nct.cdf(-critical, 4, shift) == pytest.approx(0.8)
    assert np.isnan(smallest_difference(0.0, 4)) and np.isnan(smallest_margin(float("nan"), 4))


def test_the_contrast_of_two_arms_is_the_linear_form():
    """Two one-armed contrasts in one: -(b - a) and a - b are the same; a third arm with no weight changes nothing."""
    generator = np.random.default_rng(0)
    words = generator.integers(100, 200, 12)
    a, b, c = (generator.poisson(0.1 * words, (3, 12)) for _ in range(3))
    t = crossed_t_interval(a, b, words)
    other = linear_t_interval([b, a], (-1, 1), words, constant=0.0)
    assert (other.estimate, other.low, other.df) == pytest.approx((t.estimate, t.low, t.df))
    three = linear_t_interval([a, b, c], (1, -1, 0), words)
    assert (three.estimate, three.standard_error, three.df) == pytest.approx((t.estimate, t.standard_error, t.df))


def test_planned_precision_is_that_of_the_recorded_runs():
    """Components of a recorded contrast, put together for the same seeds and speakers, give its standard error back."""
    generator = np.random.default_rng(1)
    words = np.full(30, 500.0)
    x = [generator.normal(0, 6, (3, 1)) + generator.normal(0, 12, (3, 30)) + 50 for _ in range(2)]
    planned = components(*x, words).precision(3, 30)
    assert planned[0] == pytest.approx(crossed_t_interval(*x, words).standard_error, rel=0.02)
    more = components(*x, words).precision(6, 30)
    assert more[0] < planned[0] and more[1] > planned[1]
    assert components(x[0][:1], x[1], words) is None


@pytest.mark.parametrize(("speakers", "seeds"), [(10, 3), (40, 3)])
def test_simulated_coverage_size_and_power(speakers, seeds):
    """A short form of the table in docs/statistics.md."""
    truth = Truth(speakers, seeds)
    none = simulate(truth, difference=0.0, runs=600)
    assert none.coverage > 0.93 and none.better < 0.07
    assert simulate(truth, difference=none.smallest_difference, runs=600).better == pytest.approx(0.8, abs=0.1)
    assert simulate(truth, difference=0.0, margin=none.smallest_margin, runs=600).equal == pytest.approx(0.8, abs=0.1)
    edge = simulate(truth, difference=1.0, margin=1.0, runs=600)  # truly at the margin: equal at most 5 %
    assert edge.equal < 0.075
    assert simulate(Truth(speakers, 1, seed=2.0), difference=0.0, runs=300).coverage < 0.75


@pytest.mark.parametrize(
    ("name", "heads"), [("verdicts", "| seed effect |"), ("pooling", "| seed variance of the arms |")]
)
def test_tables_of_the_statistics_page_are_the_recorded_simulation(name, heads):
    """docs/statistics.md prints results/published/bench/*.csv, in per cent or points, less what is the same in all rows."""
    text = (ROOT / "docs/statistics.md").read_text()
    printed = [line.strip("|").split("|") for line in text[text.index(heads) :].split("\n\n")[0].splitlines()[2:]]
    with open(ROOT / f"results/published/bench/{name}.csv", newline="") as file:
        recorded = list(csv.DictReader(file))
    if name == "pooling":
        assert {row.pop("seeds") for row in recorded} == {"3"}
    points = ("smallest_difference", "smallest_margin")
    for cells, row in zip(printed, recorded, strict=True):
        for cell, (key, value) in zip(map(str.strip, cells), row.items(), strict=True):
            if value and "." in value:
                value = f"{float(value):.1f}" if key in points else f"{100 * float(value):.1f} %"
            assert cell == value, (key, row)
