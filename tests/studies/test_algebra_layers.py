"""Adoption keeps what a trained model is, budgets are held, nonlinearities are what they claim; their page in seconds."""

import copy
import json

import pytest
import torch

from geomix.algebra import Algebra
from geomix.models.config.transformer_lm import LanguageModelConfig
from geomix.models.transformer_lm import TransformerLM
from geomix.report.algebra import layers as report
from geomix.settings.algebra_layers import ADOPTED
from geomix.studies.algebra import adoption, nonlinearities
from geomix.studies.algebra.tasks import TASKS
from tests.models.layers.test_multivector import check_pin_equivariance, randomise


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = {
        "vocab": 50,
        "positions": 16,
        "blocks": 2,
        "width": 16,
        "ff_dim": 24,
        "mixer": {"mixer": "attention", "heads": 2},
    }
    return TransformerLM(LanguageModelConfig.from_dict(config)).eval()


@pytest.mark.parametrize("arm", ADOPTED)
def test_an_insertion_without_noise_changes_nothing(model, arm):
    tokens = torch.randint(50, (3, 16), generator=torch.Generator().manual_seed(1))
    before, old = model.logits(tokens), copy.deepcopy(model)
    adoption.insert(model, ADOPTED[arm], 0, [0, 1], noise=0.0)
    same = torch.allclose(model.logits(tokens), before, atol=1e-5)
    assert same is (arm != "scratch")
    count = lambda m: sum(p.numel() for p in m.parameters())
    if arm != "continued":  # the wider scalar model and the multivector one are of one size
        other = copy.deepcopy(old)
        adoption.insert(other, ADOPTED["widened"], 0, [0, 1], noise=0.0)
        assert count(model) == pytest.approx(count(other), rel=0.01) and count(model) > 1.2 * count(old)
    with_noise = copy.deepcopy(old)
    adoption.insert(with_noise, ADOPTED[arm], 0, [0], noise=0.05)
    assert torch.allclose(with_noise.logits(tokens), before, atol=1e-6) is (arm in ("continued", "widened"))


def test_only_the_magnitudes_nonlinearity_is_equivariant():
    algebra, task = Algebra(3), TASKS["analogy"]
    x = torch.randn(5, 3, 8, dtype=torch.float64)
    without_factors = lambda name: torch.nn.Sequential(
        *(layer for layer in nonlinearities.network(task, name, algebra.product()) if not hasattr(layer, "left"))
    )
    lifted = torch.randn(5, nonlinearities.CHANNELS, 8, dtype=torch.float64)
    check_pin_equivariance(algebra, randomise(without_factors("norm")), lifted)
    for name in ("component", "gate"):
        with pytest.raises(AssertionError):
            check_pin_equivariance(algebra, randomise(without_factors(name)), lifted)
    linear = nonlinearities.network(task, "none", algebra.product()).double()
    assert torch.allclose(linear(2 * x) - linear(0 * x), 2 * (linear(x) - linear(0 * x)))


def test_nonlinearities_and_the_page(tmp_path):
    settings = {"activations": ["norm", "component", "gate", "none"], "seeds": [0], "steps": 2, "learning_rate": 0.01}
    found = nonlinearities.run_nonlinearities(settings, tmp_path / "layers" / "nonlinearities.json")
    made_up = lambda value: [{"trained": 80.0, "inserted": 80.0, "final": value + s / 10, "parameters": 9, "step_seconds": 0.1} for s in range(3)]  # fmt: skip
    finals = {"continued": 80, "widened": 79, "clifford": 70, "shuffled": 75, "scratch": 90}
    arms = {arm: made_up(final) for arm, final in finals.items()}
    values = {"arms": arms, "settings": {"updates": 2, "learning_rate": 0.1, "noise": 0.0}, "record": found["record"]}
    (tmp_path / "layers" / "adoption.json").write_text(json.dumps(values))
    report.build_layers(tmp_path)
    said = json.loads((tmp_path / "layers.json").read_text())
    assert said["adoption"] == {"clifford": "geometry earns its place", "scratch": "geometry loses"}
    assert said["nonlinearities"].keys() == set(nonlinearities.NONLINEAR_TASKS)
    assert "| analogy | norm |" in (tmp_path / "layers.md").read_text()
