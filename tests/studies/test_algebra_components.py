"""Phase 2's components: they express what was declared, hold their budgets, and are judged by the rule."""

import pytest
import torch

from geomix.algebra import Algebra
from geomix.algebra.operations import sandwich
from geomix.models.arms import language_sizes
from geomix.models.config.transformer_lm import LanguageModelConfig
from geomix.models.transformer_lm import TransformerLM
from geomix.settings import load
from geomix.settings.algebra_components import COMPONENTS, SAME_SIZE
from geomix.settings.algebra_jobs import phase_study
from geomix.settings.trainings import language_training_settings
from geomix.statistics import geometry
from geomix.studies.algebra.expression import head_ranks
from tests.conftest import ROOT

CONFIG = load(ROOT / "config" / "algebra.yaml", base=ROOT / "config.yaml")
STUDY = phase_study(CONFIG, "components")
SIZES = {size.arm: size for size in language_sizes(STUDY, 1000)}


def model_of(arm, seed=0):
    settings = language_training_settings(STUDY, arm, seed)["model"]
    torch.manual_seed(seed)
    return TransformerLM(LanguageModelConfig.from_dict({**settings, "vocab": 1000, "seed": seed})).eval()


@pytest.mark.parametrize("arm", [c for c in COMPONENTS if c != "positions"])
def test_a_component_expresses_what_its_scalar_forms_cannot(arm):
    component, width = COMPONENTS[arm], STUDY["model"]["width"]
    ours = head_ranks(model_of(arm).blocks[0].mixer, width)
    theirs = [head_ranks(model_of(scalar).blocks[0].mixer, width) for scalar in component.scalars]
    for which, said in enumerate((component.score, component.values)):
        if said is not None:
            assert said == (ours[which], max(ranks[which] for ranks in theirs)) and said[0] > said[1]
    # a random table reaches the same: what differs is the geometry
    assert head_ranks(model_of(component.shuffled).blocks[0].mixer, width) == ours


@pytest.mark.parametrize("arm", COMPONENTS)
def test_budgets_are_held_exactly(arm):
    component, ours, scalar = COMPONENTS[arm], SIZES[arm], SIZES["scalar"]
    assert ours.parameters == sum(p.numel() for p in model_of(arm).parameters() if p.requires_grad)
    for other in filter(None, (component.shuffled, component.gauge)):
        assert (SIZES[other].parameters, SIZES[other].flops_per_token) == (ours.parameters, ours.flops_per_token)
    if component.budget == SAME_SIZE:
        assert ours.parameters == pytest.approx(scalar.parameters, rel=0.05 if arm == "positions" else 0.01)
        assert all(SIZES[s].parameters == pytest.approx(ours.parameters, rel=0.035) for s in component.scalars)
    else:
        assert ours.flops_per_token == scalar.flops_per_token
        assert all(SIZES[s].parameters == pytest.approx(ours.parameters, rel=0.01) for s in component.scalars)
    assert {pair[1] for pair in STUDY["comparison"]["planned"] if pair[0] == arm} >= set(component.scalars)


def test_flops_by_hand():
    """Two blocks, 64 positions: wider maps, and scores with a query's 32 keys in the mean; six operations a multiply-add."""
    extra = lambda arm: (SIZES[arm].flops_per_token - SIZES["scalar"].flops_per_token) / 6 / 2
    assert extra("qk_wide") == 2 * 64 * (176 - 64) + (176 - 64) * 32
    assert extra("qkv_wide") == 4 * 64 * (176 - 64) + 2 * (176 - 64) * 32
    # 64 = 8 channels of 8: one term has 4 x 8 x 8 weights, two times 8 multivectors and 8 biases
    dense, term = 64 * 64 + 64, 4 * 8 * 8 + 2 * 8 * 8 + 8
    assert SIZES["q"].parameters - SIZES["scalar"].parameters == 2 * (term - dense) + 2 * 2 * 4  # temperatures
    assert SIZES["qkv"].parameters - SIZES["q"].parameters == 2 * 2 * (term - dense)


@pytest.mark.parametrize("signature", [(3, 0), (2, 1), (1, 3)])
def test_the_score_of_grade_tied_maps_is_invariant_under_pin(signature):
    """Without A and B, queries and keys turn with the input, and <q ~k>_0 with a temperature a grade does not change."""
    from geomix.models.layers.linear import MultivectorLinear
    from tests.models.layers.test_multivector import random_pin

    torch.manual_seed(0)
    algebra = Algebra(*signature)
    q, k = (MultivectorLinear(algebra, 3, 4, terms=0).double() for _ in "qk")
    temperature = torch.rand(len(algebra.grades), dtype=torch.float64)[torch.tensor(algebra.grade)]
    squares = torch.tensor(algebra.squares.tolist(), dtype=torch.float64)
    score = lambda x: torch.einsum("tci,sci,i->ts", q(x), k(x), squares * temperature)
    x, pin = torch.randn(5, 3, algebra.dim, dtype=torch.float64), random_pin(algebra, 3)
    torch.testing.assert_close(score(sandwich(algebra, pin, x)), score(x), rtol=1e-6, atol=1e-6)


def test_the_rule():
    decide, better, worse, equal = geometry.decide_component, geometry.BETTER, geometry.WORSE, "equal"
    assert decide([better], better, equal) == geometry.EARNS
    assert decide([better, equal], better) == geometry.COMPONENT_ONLY
    assert decide([better], equal) == decide([better]) == geometry.COMPONENT_SHARES
    assert decide([worse], equal) == decide([better], worse) == geometry.COMPONENT_LOSES
    assert decide([equal], "cannot tell") == geometry.COMPONENT_OPEN
    assert decide([better], better, worse) == geometry.UNINFORMATIVE
    assert all(f"*{name}*" in geometry.COMPONENT_RULE for name in (geometry.COMPONENT_ONLY, geometry.COMPONENT_OPEN))
