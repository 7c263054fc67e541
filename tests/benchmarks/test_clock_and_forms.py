"""The one clock: who is called when. Forms: what counts as agreeing. No test here measures time."""

import pytest
import torch

from geomix.benchmarks.clock import Timing, measure
from geomix.benchmarks.forms import TOLERANCES, Form, compare, require, speed_up
from geomix.benchmarks.mixer import check_forms, pair_forms
from geomix.errors import UserError
from geomix.mixers import PairMixer


def test_competitors_are_called_by_turns_and_backwards_in_every_other_round():
    called = []
    calls = {name: lambda name=name: called.append(name) for name in "abc"}
    times = measure(calls, seconds=0.0, least=3, most=3, warm_up=0)
    assert "".join(called) == "abc" + "cba" + "abc"
    assert all(len(timing.wall) == len(timing.processor) == 3 for timing in times.values())


def test_short_calls_are_timed_in_bursts():
    called = []
    times = measure({"a": lambda: called.append(1)}, seconds=0.0, least=2, most=2, warm_up=2)
    assert len(called) > 100 and len(times["a"].wall) == 2


def test_medians_spread_and_paired_speed_up_by_hand():
    ours, theirs = Timing((1.0, 2.0, 4.0), (0.5, 0.5, 2.0)), Timing((3.0, 4.0, 20.0), (1.0, 1.0, 1.0))
    assert (ours.seconds, ours.processor_seconds, ours.spread) == (2.0, 0.5, 1.5)
    x = [torch.ones(2), torch.ones(2)]
    right = compare(x, x, 1e-6)
    assert speed_up(ours, theirs, right) == 3.0  # of the ratios 3, 2 and 5
    assert speed_up(ours, theirs) is None


def outcome(scale=1.0, wrong=0.0, nan=False):
    leaf = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    add = float("nan") if nan else wrong
    return Form(lambda: scale * leaf**2 + add * leaf.detach(), [leaf], torch.ones(2, dtype=torch.float64)).outcome()


def test_values_and_gradients_must_both_agree():
    truth, tolerance = outcome(), TOLERANCES[torch.float32]
    assert compare(outcome(), truth, tolerance)
    assert not compare(outcome(wrong=0.1), truth, tolerance)  # values alone differ
    right_value = [truth[0], truth[1] * 1.1]
    assert not compare(right_value, truth, tolerance) and compare(right_value, truth, tolerance).value == 0
    assert not compare(outcome(nan=True), truth, tolerance)
    alone = compare(truth[:1], truth, tolerance)
    assert not alone and alone.gradient is None  # nothing is told of a form without gradients
    with pytest.raises(UserError, match="mixer: fast differs by 1.0e-01 .* nothing is timed"):
        require({"fast": compare(right_value, truth, tolerance)}, "mixer")


def test_a_gradient_of_rounding_alone_does_not_count():
    truth = [torch.ones(1), torch.tensor([1.0]), torch.tensor([1e-9])]
    found = [torch.ones(1), torch.tensor([1.0]), torch.tensor([-2e-9])]
    assert compare(found, truth, 1e-3)


def test_the_pair_mixers_forms_agree_and_a_wrong_one_is_found(monkeypatch):
    torch.manual_seed(0)
    mixer = PairMixer(16, rank=6, two_sided=False, blend=True).double()
    x, upstream = (torch.randn(3, 37, 16, dtype=torch.float64) for _ in range(2))
    assert all(check_forms(mixer, x, upstream, False).values())
    assert set(pair_forms(mixer, x, upstream, False)) == {"paper", "anchored"}
    anchored = mixer.__class__.forward
    monkeypatch.setattr(PairMixer, "forward", lambda m, u, f: anchored(m, u, f) * (1 + 1e-6 * (m.form == "anchored")))
    agrees = check_forms(mixer, x, upstream, False)
    assert agrees["paper"] and not agrees["anchored"]
