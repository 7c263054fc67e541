"""Truncation: data, tables and losses against the full algebra; a job and its page in seconds."""

import numpy as np
import pytest
import torch

from geomix.algebra import Algebra
from geomix.algebra.operations import associator, product, project
from geomix.report.algebra import truncation as report
from geomix.settings.algebra_truncation import DECLARED, SPARSE, Cell, cell_settings, cells
from geomix.statistics.geometry import enough, stops_separating
from geomix.studies.algebra import truncation

SETTINGS = {
    "tasks": ["turn", "rotors"], "dimensions": [4], "grades": [1, 2, "all"], "tables": 2, "gauge_tables": 1, "seeds": [0],
    "steps": 3, "learning_rate": 0.01, "parameters": 300,
}  # fmt: skip


@pytest.mark.parametrize("name", DECLARED)
def test_data_do_not_depend_on_the_truncation(name):
    kept = [k for k in (1, 2, "all") if k == "all" or k >= DECLARED[name].holds]
    draws = [truncation.task_of(Cell(name, 5, k)).draw(0, "train", 20) for k in kept]
    targets = [y for _, y in draws]
    assert all(torch.equal(y, targets[0]) for y in targets)
    assert all(torch.equal(x[:, : draws[0][0].shape[1]], draws[0][0]) for x, _ in draws)


def test_targets_against_dot_products():
    x, y = truncation.task_of(Cell("chain", 5, 1)).draw(0, "test", 50)
    a, b, c, d, e = x[:, 1:].double()
    dot = lambda u, v: (u * v).sum(0)
    # <abc>_1, then <(<abc>_1 + <abc>_3) de>_1 by contraction
    abc = dot(a, b) * c - dot(a, c) * b + dot(b, c) * a
    first = dot(d, e) * abc - dot(abc, e) * d + dot(abc, d) * e
    twice = lambda u, v: dot(u, d) * dot(v, e) - dot(u, e) * dot(v, d)
    tri = -(twice(b, c) * a - twice(a, c) * b + twice(a, b) * c)
    assert torch.allclose(y.double(), first + tri, atol=1e-5)
    # a simple rotor has grades 0 and 2 alone and is a unit, in any dimension
    x, _ = truncation.task_of(Cell("rotors", 6, "all")).draw(0, "test", 20)
    grade = Algebra(6).grade
    assert x[:, ~np.isin(grade, (0, 2))].abs().max() < 1e-12
    assert torch.allclose(x.square().sum(1), torch.ones(3, 20), atol=1e-5)


def test_products_lose_what_truncation_takes():
    for n in (4, 5):
        assert truncation.losses(Algebra(n))["associator"] == pytest.approx(0, abs=1e-20)
        cut = truncation.losses(Algebra.truncated(n, 2))
        assert min(cut.values()) > 0.05
    # one triple by the library's own truncated products
    algebra, full = Algebra.truncated(4, 2), Algebra(4)
    a, b, c = torch.randn(3, algebra.dim, dtype=torch.float64)
    lift = lambda m: torch.cat((m, m.new_zeros(full.dim - algebra.dim)))
    left = project(full, product(full, project(full, product(full, lift(a), lift(b)), 0, 1, 2), lift(c)), 0, 1, 2)
    ours = product(algebra, product(algebra, a, b), c)
    assert torch.allclose(left[: algebra.dim], ours)
    assert associator(algebra, a, b, c).abs().max() > 0.1


def test_sparse_tables_are_nested_and_make_no_dropped_bivector():
    algebra = Algebra.truncated(5, 2)
    third, two = (truncation.sparse_table(algebra, arm).triplets for arm in SPARSE)
    pairs = lambda t: set(zip(t.i.tolist(), t.j.tolist(), t.k.tolist(), strict=True))
    assert pairs(third) < pairs(two) < pairs(algebra.product())
    made = {k for k in third.k.tolist() if algebra.grade[k] == 2}
    assert len(made) == round(10 / 3)


def test_budgets_are_held():
    settings = {**SETTINGS, "parameters": 900}
    for cell in (Cell("turn", 6, "all"), Cell("chain", 5, 2), Cell("rotors", 4, 3)):
        counts = {arm: truncation.build(cell, arm, [0], settings).parameter_count for arm in cell.arms}
        assert all(count == pytest.approx(900, rel=0.05) for count in counts.values()), counts


def test_the_rules():
    assert enough({"1": 0.3, "2": 0.05, "3": 0.012, "all": 0.01}, 2) == "3"
    assert (
        stops_separating({"1": (8, 8), "2": (7, 8), "all": (8, 8)}) == "2" and stops_separating({"1": (8, 8)}) is None
    )


def test_jobs_and_their_page(tmp_path, monkeypatch):
    names = [cell.name for cell in cells(SETTINGS)]
    assert names == ["turn-n4-k1", "turn-n4-k2", "turn-n4-kall", "rotors-n4-k2", "rotors-n4-kall"]
    for name in names:
        found = truncation.run_cell(cell_settings(SETTINGS, name), tmp_path / "truncation" / f"{name}.json")
        assert np.shape(found["arms"]["shuffled"]["errors"]) == (2, 1)
        # the same algebra under other names is the same network
        assert found["arms"]["gauge"]["errors"][0] == pytest.approx(found["arms"]["clifford"]["errors"][0], rel=1e-3)
    report.build_truncation(tmp_path, SETTINGS)
    page = (tmp_path / "truncation.md").read_text()
    assert "| turn | 4 | 1 | 5 |" in page and (tmp_path / "figures/truncation.png").is_file()
