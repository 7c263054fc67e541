"""`geomix anatomy`: on a made-up run whose answers are known, what each change does, the best pair mixer, the dial."""

import re

import numpy as np
import pytest

from geomix.cli import main
from geomix.errors import UserError
from geomix.files import read_json, write_json
from geomix.report.anatomy import Anatomy, Place, write_anatomy
from geomix.statistics import t_interval
from geomix.statistics.verdicts import side_of_dials
from tests.report import made_up

PAIR = {"mixer": "pair", "kind": "wedge", "gate": "article", "signs": "fixed", "signs_start": -1.0, "rank": 24}
DIAL = {**PAIR, "signs": "learned"}
ARMS = {
    "attention": ({"mixer": "attention"}, 0.10),
    "no_mixer": ({"mixer": "none"}, 0.16),
    "grassmann": (PAIR, 0.25),
    "symmetric": ({**PAIR, "kind": "symmetric"}, 0.25),
    "add": ({**PAIR, "gate": "add", "rank": 20}, 0.11),
    "add_symmetric": ({**PAIR, "gate": "add", "kind": "symmetric"}, 0.17),
    "dial_wedge": (DIAL, 0.24),
    "dial_symmetric": ({**DIAL, "signs_start": 1.0}, 0.24),
    "summary": ({"mixer": "summary"}, 0.12),
}
STARTS = {"dial_wedge": -1.0, "dial_symmetric": 1.0}
TEST = Place("own", "test")


def signs_of(start, seed, blocks=2, coordinates=6):
    """Of two blocks, all drawn towards -1: the first ends below -0.5, the second half way."""
    rng = np.random.default_rng(seed)
    ends = np.array([[-0.9], [-0.3]]) + 0.05 * start + rng.uniform(-0.02, 0.02, (blocks, coordinates))
    blocks_of = lambda values: [{"block": i, "sine_quantiles": {}, "signs": list(v)} for i, v in enumerate(values)]
    return {"start": blocks_of(np.full((blocks, coordinates), start)), "end": blocks_of(ends)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("anatomy")
    study = made_up.make_study(folder, arms=tuple(ARMS), gate=None)
    study["arms"] = {arm: definition for arm, (definition, _) in ARMS.items()}
    study["hypothesis"] = []
    write_json(folder / "study.json", study)
    for arm, (_, rate) in ARMS.items():
        for seed in (0, 1, 2):
            made_up.make_training(folder, "own", arm, seed, rate=rate)
            if arm in STARTS:
                write_json(folder / "own" / arm / f"seed{seed}" / "diagnostics.json", signs_of(STARTS[arm], seed))
    made_up.write_comparisons(folder)
    return folder


def test_what_each_change_does(folder):
    anatomy = Anatomy.read(folder)
    assert anatomy.plain == "grassmann" and anatomy.rivals == ["attention", "no_mixer", "summary"]
    changes = {change.arm: change for change in anatomy.changes(TEST)}
    assert list(changes)[0] == "grassmann" and changes["grassmann"].effect is None
    assert (changes["add"].done, changes["add_symmetric"].done) == ("gate add", "gate add, kind symmetric")
    rates = {arm: np.mean([rate_of(folder, arm, seed) for seed in (0, 1, 2)]) for arm in ARMS}
    for arm, change in changes.items():
        assert change.wer == pytest.approx(rates[arm])
        assert change.deficit.difference == pytest.approx(rates[arm] - rates["no_mixer"])
        assert change.deficit.low < change.deficit.difference < change.deficit.high
        if arm != "grassmann":
            assert change.effect.difference == pytest.approx(rates[arm] - rates["grassmann"])
            assert change.effect.low < change.effect.difference < change.effect.high
    assert (changes["add"].deficit.verdict, changes["grassmann"].deficit.verdict) == ("a better", "b better")
    assert anatomy.verdicts(TEST)["worse"] == 4 and sum(anatomy.verdicts(TEST).values()) == 6


def rate_of(folder, arm, seed):
    return read_json(folder / "own" / arm / f"seed{seed}" / "score" / "test.json")["words"]["rate"]


def test_wedge_and_symmetric_under_each_change(folder):
    twins = list(Anatomy.read(folder).twins(TEST))
    assert [(t.contrast.a, t.contrast.b) for t in twins] == [
        ("grassmann", "symmetric"), ("add", "add_symmetric"), ("dial_wedge", "dial_symmetric"),
    ]  # fmt: skip
    plain, add, _ = twins
    assert plain.moved is None
    assert add.moved.estimate == pytest.approx(add.contrast.difference - plain.contrast.difference)
    assert add.moved.high < 0 and add.contrast.verdict == "a better"


def test_the_best_is_chosen_on_dev_and_held_against_all_that_are_no_pairs(folder):
    anatomy = Anatomy.read(folder)
    assert anatomy.best("own") == "add"
    assert [(c.a, c.b) for c in anatomy.beside(TEST)] == [("add", arm) for arm in ("attention", "no_mixer", "summary")]


def test_what_the_dial_learned_by_block(folder):
    rows = {(row.arm, row.block): row for row in Anatomy.read(folder).dials()}
    assert list(rows) == [(arm, block) for arm in STARTS for block in ("1", "2", "all")]
    first, second, both = (rows["dial_symmetric", block] for block in ("1", "2", "all"))
    assert (first.began, first.planes, first.symmetric) == (1.0, 1.0, 0.0) and second.planes == 0
    assert first.mean == pytest.approx(-0.85, abs=0.02) and both.mean == pytest.approx((first.mean + second.mean) / 2)
    assert both.planes == 0.5 and first.quantiles[0] < first.mean < first.quantiles[2]


def interval(mean):
    return t_interval(mean, 1e-4, 2)


@pytest.mark.parametrize(
    ("ends", "side"),
    [
        ([(-1, -0.9), (0, -0.4), (1, -0.2)], "planes"),
        ([(-1, 0.9), (1, 0.9)], "symmetric"),
        ([(-1, -0.9), (0, 0.4), (1, 0.9)], "as they began"),
        ([(-1, -0.9), (0, -0.4)], "cannot tell"),  # none came from the other side
        ([(-1, -0.9), (0, 0.001), (1, -0.9)], "cannot tell"),
        ([(-1, 0.9), (1, -0.9)], "cannot tell"),
    ],
)
def test_a_side_is_said_only_of_dials_that_came_to_it_from_both(ends, side):
    assert side_of_dials([(start, interval(end)) for start, end in ends]) == side
    assert side_of_dials([(start, None) for start, _ in ends]) == "cannot tell"  # one seed


def test_the_page(folder, tmp_path, capsys):
    main(["anatomy", str(folder), "--out", str(tmp_path)])
    page = (tmp_path / "anatomy.md").read_text()
    assert page in capsys.readouterr().out and "this model prefers planes" in page
    assert "4 worse" in page and "`add` has the lowest CER on dev" in page
    assert re.search(r"\| add \| gate add \| .* \| add better \| .* \| add better \|", page)
    assert (tmp_path / "anatomy_dial.svg").is_file() and not re.search(r"None|nan|\n\n\n", page)
    write_anatomy(folder, tmp_path)
    assert (tmp_path / "anatomy.md").read_text() == page


def test_a_run_that_has_no_anatomy_is_a_sentence(tmp_path):
    made_up.make_run(tmp_path, arms=("attention", "no_mixer"), gate=None)
    with pytest.raises(UserError, match="has no pair mixer among its arms"):
        write_anatomy(tmp_path)
    with pytest.raises(UserError, match="is a language study"):
        write_anatomy(made_up.PUBLISHED / "wikitext2/language", tmp_path)
    with pytest.raises(SystemExit):
        main(["anatomy", str(made_up.PUBLISHED / "an4")])
    assert not list(tmp_path.glob("anatomy*"))
