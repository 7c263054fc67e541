"""Rotor planes and grades inside models: controls that must change nothing, by independent sums; the rules."""

import json

import pytest
import torch

from geomix.algebra import Algebra
from geomix.models.config.transformer_lm import LanguageModelConfig
from geomix.models.transformer_lm import TransformerLM
from geomix.statistics import geometry
from geomix.studies.algebra import inside

ROTORS = {"mixer": "multivector_attention", "heads": 2, "temperature": "dot", "rotors": True}


def model_of(mixer=ROTORS, **replaced):
    torch.manual_seed(0)
    values = {
        "vocab": 40,
        "positions": 12,
        "blocks": 2,
        "width": 32,
        "ff_dim": 32,
        "mixer": mixer,
        "replaced": replaced,
    }
    return TransformerLM(LanguageModelConfig.from_dict(values)).eval()


def loss_of(model):
    tokens = torch.randint(40, (4, 13), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return float(model(tokens[:, :-1], tokens[:, 1:])["loss"])


@pytest.mark.parametrize("grades", [None, [1], [0, 2]])
def test_planes_under_other_names_change_nothing_and_others_do(grades):
    mixer = ROTORS if grades is None else {**ROTORS, "grades": grades, "heads": 1 if grades == [1] else 2}
    if grades == [1]:
        mixer["signature"] = [4, 0, 0]
    model, start = model_of(mixer), model_of(mixer)
    with torch.no_grad():
        for attention in inside.turned(model):
            attention.positions.bivectors.add_(torch.randn_like(attention.positions.bivectors))
            attention.qkv.weight.mul_(8)
    found = inside.planes(model, start, loss_of, seed=0)
    assert abs(found["gauge"]) < 1e-4
    assert all(abs(cost) > 1e-3 for cost in found["costs"].values())
    assert all(0.1 < share < 1 for share in found["off_plane"])
    untrained = inside.planes(start, start, loss_of, seed=0)
    assert untrained["off_plane"] == [0, 0] and abs(untrained["costs"]["start"]) < 1e-6


def test_grade_shares_of_what_maps_give():
    projections = {"map": "multivector", "terms": 1, "of": ["q", "k"]}
    model = model_of({**ROTORS, "rotors": False}, projections=projections, feed_forward={"map": "dense", "inner": 8})
    tokens = torch.randint(40, (2, 12))
    shares = inside.grade_shares(model, lambda m: m.hidden(tokens))
    assert list(shares) == [f"blocks.{b}.mixer.qkv.{role}" for b in (0, 1) for role in "qk"]
    assert all(sum(s) == pytest.approx(1) and len(s) == 4 for s in shares.values())
    kept = []
    model.blocks[0].mixer.qkv.q.register_forward_hook(lambda m, x, y: kept.append(y.view(-1, 8)))
    model.hidden(tokens)
    square = kept[0].detach().square().sum(0)
    expected = [square[0], square[1:4].sum(), square[4:7].sum(), square[7]]
    assert shares["blocks.0.mixer.qkv.q"] == pytest.approx([float(e / square.sum()) for e in expected], rel=1e-5)
    assert inside.departure({"a": [1 / 8, 3 / 8, 3 / 8, 1 / 8]}, Algebra(3)) == pytest.approx(0)
    assert inside.departure({"a": [1.0, 0, 0, 0]}, Algebra(3)) == pytest.approx(7 / 8)


def test_the_rules():
    costs = lambda start, random, rates: [{"start": start, "random": random, "rates": rates}] * 3
    assert geometry.judge_planes(costs(0.1, 0.2, 0.3), [0.0]) == geometry.PLANES_LEARNED
    assert geometry.judge_planes(costs(0.0, 0.2, 0.3), [0.0]) == geometry.RATES_LEARNED
    assert geometry.judge_planes(costs(0.0, 0.2, 0.0), [0.0]) == geometry.PLANES_IDLE
    assert geometry.judge_planes(costs(0.1, 0.2, 0.3), [0.5]) == geometry.UNINFORMATIVE
    assert geometry.judge_grades([0.4, 0.5], [0.1], [0.2]) == geometry.LEARNED
    assert geometry.judge_grades([0.4, 0.5], [0.3], [0.2]) == geometry.CONSTRUCTED
    assert geometry.judge_grades([0.3], [0.1], [0.2]) == geometry.NULL


def test_the_page(tmp_path):
    from geomix.report.algebra import inside as report

    planes = {"off_plane": [0.1, 0.2], "costs": {"start": 0.0, "random": 0.1, "rates": 0.2}, "gauge": 0.0}
    grades = lambda value: [{k: {"shares": {"a": [0.4, 0.3, 0.2, 0.1]}, "departure": v} for k, v in (("trained", value), ("untrained", 0.1))}] * 2  # fmt: skip
    record = {
        "commit": "a",
        "dirty": False,
        "cpu_seconds": 1,
        "cpu": "x",
        "packages": {},
        "finished": "2026-01-01T00:00:00",
    }
    found = {
        "planes": {"components/positions": [planes] * 2},
        "grades": {"components/qkv": grades(0.5), "components/qkv_shuffled": grades(0.2)},
        "record": record,
    }
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "models.json").write_text(json.dumps(found))
    report.build_inside(tmp_path)
    said = json.loads((tmp_path / "inside.json").read_text())
    assert said["planes"] == {"components/positions": geometry.RATES_LEARNED}
    assert said["grades"] == {"components/qkv": geometry.LEARNED}
