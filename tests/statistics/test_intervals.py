"""t-intervals: coverage by simulation, scipy's tests as special cases, the article's worked example."""

import numpy as np
import pytest
from scipy import stats

from geomix.statistics import crossed_t_interval, t_interval_log_perplexity


@pytest.mark.parametrize("speaker_sd", [0.5, 1.0, 1.5])
def test_coverage_is_at_least_93_percent(speaker_sd):
    """40 speakers, 3 seeds an arm, seed sd 0.3 WER points, counts drawn from the rates; the true difference is 0."""
    rng = np.random.default_rng(int(10 * speaker_sd))
    held, runs = 0, 1500
    for _ in range(runs):
        words = rng.integers(300, 1500, 40)
        difficulty = rng.normal(10, 3, 40)

        def arm(words=words, difficulty=difficulty):
            rate = difficulty + rng.normal(0, speaker_sd, 40) + rng.normal(0, 0.3, (3, 1))
            return rng.poisson(np.clip(rate, 0.1, 100) / 100 * words)

        interval = crossed_t_interval(arm(), arm(), words)
        held += interval.low <= 0 <= interval.high
    assert 0.93 <= held / runs <= 0.985


def test_one_seed_and_equal_speakers_is_the_paired_t_test():
    rng = np.random.default_rng(0)
    a, b = rng.poisson(30, 12), rng.poisson(35, 12)
    ours = crossed_t_interval(a, b, np.full(12, 200))
    theirs = stats.ttest_rel(100 * a / 200, 100 * b / 200)
    low, high = theirs.confidence_interval()
    assert (ours.p, ours.df) == pytest.approx((theirs.pvalue, 11))
    assert (ours.low, ours.high) == pytest.approx((low, high))


def test_seeds_alone_are_welchs_test():
    """Speakers that all behave alike leave the seeds' variance only."""
    a, b = np.array([40, 44, 50]), np.array([41, 30, 33, 36])
    ours = crossed_t_interval(np.outer(a, np.ones(30)), np.outer(b, np.ones(30)), np.full(30, 400))
    theirs = stats.ttest_ind(a / 4, b / 4, equal_var=False)
    assert (ours.p, ours.df) == pytest.approx((theirs.pvalue, theirs.df))
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval()))


def test_interaction_is_not_counted_twice():
    """Independent noise a cell, in one arm: the variance is that of a mean of S K cells (or somewhat more, since it
    never falls below its largest term), not twice that, as seed and speaker terms add up to."""
    rng = np.random.default_rng(2)
    words = np.full(40, 1000)
    errors = [crossed_t_interval(100 + 10 * rng.normal(size=(5, 40)), np.full((1, 40), 100), words) for _ in range(300)]
    expected = 1 / (5 * 40)
    assert expected < np.mean([e.standard_error**2 for e in errors]) < 1.5 * expected


def test_a_single_speaker_gives_no_interval():
    interval = crossed_t_interval([[5], [6]], [[7], [8]], [100])
    assert interval.estimate == pytest.approx(-2.0)
    assert np.isnan([interval.low, interval.high, interval.p]).all()


def test_log_perplexity_as_the_article_works_it():
    """Article e01: validation perplexities, rounded to one decimal, of the three seeds of three arms."""
    transformer, grassmann, symmetric = (247.1, 250.5, 246.2), (329.8, 329.6, 330.6), (329.3, 325.6, 326.2)
    found = t_interval_log_perplexity(grassmann, transformer)
    assert found.log.estimate == pytest.approx(0.2859, abs=2e-4)
    assert found.log.standard_error == pytest.approx(0.0053, abs=1e-4)
    assert found.log.df == 2
    assert (found.log.low, found.log.high) == pytest.approx((0.2631, 0.3087), abs=4e-4)
    assert (found.low, found.high) == pytest.approx((1.301, 1.362), abs=6e-4)
    control = t_interval_log_perplexity(grassmann, symmetric)
    assert (control.low, control.high) == pytest.approx((0.994, 1.025), abs=6e-4)
    assert control.low < 1 < control.high


def test_log_perplexity_hand_arithmetic_and_welch():
    a, b = np.exp([1.0, 1.1, 1.2]), np.exp([0.5, 0.9])
    found = t_interval_log_perplexity(a, b)
    error = np.sqrt(0.01 / 3 + 0.08 / 2)
    assert (found.log.standard_error, found.log.df) == pytest.approx((error, 1))
    assert found.log.high == pytest.approx(0.4 + 12.7062047 * error)
    assert found.ratio == pytest.approx(np.exp(0.4))
    theirs = stats.ttest_ind(np.log(a), np.log(b), equal_var=False)
    welch = t_interval_log_perplexity(a, b, welch=True).log
    assert (welch.p, welch.df) == pytest.approx((theirs.pvalue, theirs.df))
    assert (welch.low, welch.high) == pytest.approx(tuple(theirs.confidence_interval()))


@pytest.mark.parametrize("bad", [[250.0], [250.0, -1.0], [250.0, float("nan")]])
def test_perplexities_that_give_no_interval_are_refused(bad):
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="at least two, all positive"):
        t_interval_log_perplexity([240.0, 250.0], bad)
