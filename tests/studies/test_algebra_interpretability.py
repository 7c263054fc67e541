"""Phase 4's tests on a network whose weights are written by hand: it composes rotors exactly, by the route R3 (R2 R1)."""

import numpy as np
import pytest
import torch

from geomix.statistics.geometry import LEARNED, judge
from geomix.studies.algebra import arms, interpretability
from geomix.studies.algebra.tasks import TASKS


def by_hand():
    """Channel 0 of the first layer is R2 R1, channel 1 carries R3; the second layer multiplies them."""
    stack = arms.build(TASKS["rotors_spin3"], "clifford", [0])
    with torch.no_grad():
        for p in stack.parameters.values():
            p.zero_()
        set_ = lambda name, out, source: stack.parameters[name][..., out, source].fill_(1.0)
        set_("u0", 0, 1), set_("v0", 0, 0), set_("w0", 1, 2)
        set_("u1", 0, 1), set_("v1", 0, 0)
        set_("out", 0, 0)
    return stack


@pytest.fixture(scope="module")
def models():
    task = TASKS["rotors_spin3"]
    return {
        "trained": by_hand(),
        "untrained": arms.build(task, "clifford", [100, 101]),
        "shuffled": arms.build(task, "shuffled", [0], 2),
    }


def test_the_network_is_what_it_should_be(models):
    x, y = TASKS["rotors_spin3"].draw(0, "test", 20)
    assert torch.allclose(models["trained"].forward(x.unsqueeze(0))[0, 0], y, atol=1e-5)


@torch.no_grad()
def test_each_question_on_it(models):
    composed = interpretability.composition(models)
    assert max(composed["values"]["trained"]) < 0.5 < min(composed["values"]["untrained"])
    planes = interpretability.planes(models)
    assert planes["pairs"]["trained"]["R2R1"] < 1e-6 < 0.3 < planes["pairs"]["trained"]["R3R2"]
    assert max(planes["values"]["trained"]) < 1e-6
    changed = interpretability.intervention(models)
    assert max(changed["values"]["trained"]) < 1e-6
    assert changed["route"]["trained"] == pytest.approx([1.0], abs=1e-4)
    for test in (composed, planes, changed):
        found = judge(*(test["values"][k] for k in ("trained", "untrained", "shuffled")))
        assert found == LEARNED


@torch.no_grad()
def test_a_turn_of_the_inputs_turns_hidden_vectors_by_construction():
    task = TASKS["analogy"]
    models = {"untrained": arms.build(task, "clifford", [0]), "shuffled": arms.build(task, "shuffled", [0], 2)}
    values = interpretability.direction(models)["values"]
    assert max(values["untrained"]) < 0.05 and np.min(values["shuffled"]) > 5
