"""The paired speaker bootstrap against a brute-force loop, kaldialign's utterance bootstrap and hand-made cases."""

import random

import kaldialign
import numpy as np
import pytest

from geomix.statistics import bootstrap_rate, paired_bootstrap
from tests.counting import calls


@pytest.fixture
def counts():
    rng = np.random.default_rng(3)
    words = rng.integers(200, 900, 25)
    return rng.poisson(0.11 * words, (3, 25)), rng.poisson(0.10 * words, (2, 25)), words


def test_agrees_with_a_loop_over_speakers_and_seeds(counts):
    errors_a, errors_b, words = counts
    rng = random.Random(0)
    differences, rates = [], []
    for _ in range(20_000):
        speakers = rng.choices(range(25), k=25)
        total = sum(words[k] for k in speakers)
        # seeds are drawn once for all speakers, anew for each arm
        a = [errors_a[s] for s in rng.choices(range(3), k=3)]
        b = [errors_b[s] for s in rng.choices(range(2), k=2)]
        rate_a = np.mean([sum(row[k] for k in speakers) for row in a]) / total
        rate_b = np.mean([sum(row[k] for k in speakers) for row in b]) / total
        rates.append(100 * rate_a)
        differences.append(100 * (rate_a - rate_b))
    found = paired_bootstrap(errors_a, errors_b, words, resamples=40_000)
    spread = np.std(differences)
    assert found.estimate == pytest.approx(100 * (errors_a.mean(0).sum() - errors_b.mean(0).sum()) / words.sum())
    assert [found.low, found.high] == pytest.approx(np.percentile(differences, [2.5, 97.5]), abs=0.1 * spread)
    assert found.p_improvement == pytest.approx(np.mean(np.array(differences) < 0), abs=0.015)
    single = bootstrap_rate(errors_a, words, resamples=40_000)
    assert [single.low, single.high] == pytest.approx(np.percentile(rates, [2.5, 97.5]), abs=0.1 * np.std(rates))


def test_agrees_with_kaldialign_where_every_utterance_is_a_speaker():
    rng = random.Random(5)
    references = [[rng.choice("ABCDEF") for _ in range(rng.randint(3, 20))] for _ in range(300)]

    def garble(rate):
        return [[rng.choice("ABCDEF") if rng.random() < rate else w for w in r] for r in references]

    one, two = garble(0.22), garble(0.2)
    count = lambda hyps: [kaldialign.edit_distance(r, h)["total"] for r, h in zip(references, hyps, strict=True)]
    words = [len(r) for r in references]
    kaldi = kaldialign.bootstrap_wer_ci(references, one, two)
    for name, hyps in (("system1", one), ("system2", two)):
        ours = bootstrap_rate(count(hyps), words)
        assert ours.low == pytest.approx(100 * kaldi[name]["ci95min"], abs=0.15)
        assert ours.high == pytest.approx(100 * kaldi[name]["ci95max"], abs=0.15)
    ours = paired_bootstrap(count(two), count(one), words)
    assert ours.p_improvement == pytest.approx(kaldi["p_s2_improv_over_s1"], abs=0.02)


def test_common_speaker_difficulty_cancels_in_the_difference(counts):
    """Arms that differ by one error a speaker differ by exactly that in every replicate, however speakers vary."""
    errors, _, words = counts
    equal = np.full(25, 400)
    found = paired_bootstrap(errors[:1] + 4, errors[:1], equal)
    assert (found.estimate, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))
    same = paired_bootstrap(errors[:1], errors[:1], words)
    assert (same.low, same.high, same.p_improvement) == (0, 0, 0.5)


def test_seed_spread_widens_the_interval_and_nested_seeds_would_not():
    words = np.full(40, 500)
    errors = np.outer([40, 50, 60], np.ones(40))  # seeds differ, speakers do not
    found = bootstrap_rate(errors, words)
    assert (found.low, found.high) == pytest.approx((8.0, 12.0))  # all three draws the same seed: 1 in 27 > 2.5 %


def test_repeatable_and_without_a_loop_over_resamples():
    rng = np.random.default_rng(0)
    words = rng.integers(1000, 1500, 40)
    a, b = rng.poisson(100, (3, 40)), rng.poisson(100, (3, 40))
    first = paired_bootstrap(a, b, words)
    assert first == paired_bootstrap(a, b, words)
    assert first != paired_bootstrap(a, b, words, seed=1)
    few, many = (calls(lambda n=n: paired_bootstrap(a, b, words, resamples=n)) for n in (100, 10_000))
    assert many < 1.5 * few


def test_a_single_speaker_has_no_interval_and_bad_counts_are_refused():
    assert np.isnan(bootstrap_rate([3], [100]).low)
    assert np.isnan(paired_bootstrap([3], [4], [100]).high)
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(seeds, 2 speakers\)"):
        bootstrap_rate(np.ones((2, 3)), [5, 5])
    with pytest.raises(ValueError, match="positive sum"):
        bootstrap_rate([0, 0], [0, 0])
    with pytest.raises(ValueError, match="resamples is 0"):
        bootstrap_rate([1, 2], [5, 5], resamples=0)


def test_speakers_without_a_reference_word_count_their_insertions():
    found = bootstrap_rate([5, 1, 0], [50, 50, 0], resamples=2000)
    assert found.estimate == pytest.approx(6.0)
    assert np.isfinite([found.low, found.high]).all()
