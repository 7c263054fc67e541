"""Hypotheses over the arms' rates: what is read, and how it is judged."""

import numpy as np
import pytest

from geomix.settings.predicates import Linear, PredicateError, parse
from geomix.statistics.intervals import linear_t_interval
from geomix.statistics.verdicts import judge

ARMS = ("attention", "grassmann", "no_mixer", "one-offset")
RATES = {"attention": 9.0, "grassmann": 12.0, "no_mixer": 14.0, "one-offset": 11.0}


def value(linear: Linear) -> float:
    return linear.constant + sum(c * RATES[arm] for arm, c in linear.coefficients.items())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("grassmann - attention > 0", 3.0),
        ("attention < grassmann", 3.0),
        ("grassmann > one-offset", 1.0),
        ("2 * (grassmann - attention) > no_mixer / 2 - 1.5", 0.5),
        ("-attention + grassmann * 3 > .5", 26.5),
    ],
)
def test_a_linear_predicate_is_what_python_would_compute(text, expected):
    assert value(parse(text, ARMS).linear) == pytest.approx(expected)


def test_a_quotient_becomes_a_contrast():
    p = parse("(grassmann - attention) / (no_mixer - attention) > 0.5", ARMS)
    assert (value(p.linear), value(p.over), p.bound) == (3.0, 5.0, 0.5)
    q = parse("0.5 > (grassmann - attention) / (no_mixer - attention)", ARMS)  # that is -x / y > -0.5
    assert (value(q.linear), value(q.over), q.bound) == (-3.0, 5.0, -0.5)
    assert p.arms == ["grassmann", "attention", "no_mixer"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grassman > attention", "no arm of the configuration"),
        ("grassmann > attention > 0", "one comparison"),
        ("grassmann - attention", "comparison"),
        ("grassmann * attention > 0", "not linear"),
        ("equal(grassmann)", "comma"),
        ("grassmann / attention + 1 > 2", "stands alone"),
        ("grassmann / attention > no_mixer", "compared with a number"),
        ("1 > 0", "speaks of no arm"),
        ("grassmann / 0 > 1", "divides by zero"),
        ("__import__('os') > 0", "is no number"),
        ("(grassmann > 0", "closing bracket"),
        ("", "the end"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text, says):
    with pytest.raises(PredicateError, match=says):
        parse(text, ARMS)


def judged(text: str, errors: dict[str, np.ndarray], margin=None) -> str:
    words = np.full(20, 1000.0)

    def interval(linear: Linear):
        arms = list(linear.coefficients)
        return linear_t_interval(
            [errors[a] for a in arms], [linear.coefficients[a] for a in arms], words, constant=linear.constant
        )

    predicate = parse(text, errors)
    return judge(predicate, interval, lambda: interval(predicate.linear), margin)


def made(rate: float, seed: int, spread: float = 2.0) -> np.ndarray:
    """Errors of three seeds and 20 speakers of 1,000 words around `rate` %."""
    generator = np.random.default_rng(seed)
    return 10 * (rate + generator.normal(0, 0.05, (3, 1)) + spread * generator.normal(0, 0.1, (3, 20)))


def test_predicates_are_judged_by_their_interval():
    errors = {"a": made(9, 1), "g": made(12, 2), "n": made(14, 3), "s": made(12.01, 4)}
    assert judged("g - a > 0", errors) == "holds"
    assert judged("g - a < 0", errors) == "contradicted"
    assert judged("g - s > 0", errors) == "open"
    assert judged("(g - a) / (n - a) > 0.5", errors) == "holds"
    assert judged("(a - g) / (a - n) > 0.5", errors) == "holds"  # a negative denominator turns the sign
    assert judged("(g - a) / (n - a) > 0.7", errors) == "contradicted"
    assert judged("(g - a) / (g - s) > 0.5", errors) == "open"  # its denominator may be zero
    assert judged("equal(g, s)", errors, margin=0.5) == "holds"
    assert judged("equal(g, a)", errors, margin=0.5) == "contradicted"
    assert judged("equal(g, s)", errors) == "open"  # no margin was stated


def test_without_an_interval_all_is_open():
    assert judge(parse("g > a", ("g", "a")), lambda linear: None) == "open"
