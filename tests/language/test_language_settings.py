"""One notion of a changed setting: what an arm's keys mean, what changes a hash and what does not."""

import copy

import pytest
from geomix.language.settings import OFFSETS, check_language, language_settings, runs_of

from geomix.errors import UserError
from geomix.mixers import pair

LANGUAGE = {
    "corpus": {"name": "w", "kind": "wikitext", "path": "/somewhere", "vocabulary": "/there/vocab.txt"},
    "model": {"blocks": 6, "norm": "post", "positions": 128},
    "arms": {
        "transformer": {"mixer": "attention", "heads": 4},
        "recipe": {"mixer": "pair", "rank": 8, "norm": "pre", "warmup": 100, "gated": True, "seeds": [3]},
    },
    "study": {"arms": ["transformer", "recipe"], "seeds": [0, 1]},
    "comparison": {"planned": [["recipe", "transformer"]]},
    "gate": {"arm": "transformer"},
    "training": {"epochs": 2, "warmup": 1, "threads": 2, "device": "auto", "log_every": 5, "save_minutes": 1},
}


def test_an_arms_keys_go_where_they_belong():
    found = language_settings(LANGUAGE, "recipe", 3)
    assert found["model"] == {"blocks": 6, "norm": "pre", "positions": 128, "mixer": {"mixer": "pair", "rank": 8}}
    assert found["training"] == {"epochs": 2, "warmup": 100}
    assert found["seed"] == 3
    assert language_settings(LANGUAGE, "transformer", 0)["model"]["norm"] == "post"


@pytest.mark.parametrize(
    "path, value, changes",
    [
        (("training", "threads"), 8, False),
        (("training", "device"), "cuda", False),
        (("corpus", "path"), "/elsewhere", False),
        (("corpus", "vocabulary"), "/elsewhere.txt", False),
        (("arms", "transformer", "gated"), True, False),
        (("arms", "recipe", "rank"), 9, False),  # another arm's
        (("training", "epochs"), 3, True),
        (("corpus", "vocabulary"), 4096, True),
        (("arms", "transformer", "heads"), 8, True),
        (("arms", "transformer", "learning_rate"), 0.1, True),
    ],
)
def test_what_changes_a_training(path, value, changes):
    other = copy.deepcopy(LANGUAGE)
    place = other
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert (language_settings(other, "transformer", 0) != language_settings(LANGUAGE, "transformer", 0)) == changes


def test_runs_are_the_studys_seeds_or_the_arms_own():
    assert runs_of(LANGUAGE) == [("transformer", 0), ("transformer", 1), ("recipe", 3)]


def test_unknown_arms_are_named():
    check_language(LANGUAGE)
    with pytest.raises(UserError, match="language.study.arms names 'grasmann'"):
        check_language({**LANGUAGE, "study": {"arms": ["grasmann"], "seeds": [0]}})
    with pytest.raises(UserError, match="language.arms.recipe.gated"):
        check_language({**LANGUAGE, "gate": {"arm": "recipe"}})


@pytest.mark.parametrize(
    "name, arm, words",
    [
        ("recipe", {"mixer": "pair", "offsets": [64, 500]}, r"arms.recipe.offsets: 500 .* 128 tokens"),
        ("recipe", {"mixer": "pair", "offsets": [128], "one_offset_per_block": True}, "arms.recipe.offsets: 128 "),
        ("recipe", {"mixer": "pair", "heads": 2}, "arms.recipe.heads: the mixer pair"),
        ("recipe", {"mixer": "pair", "kind": "signed", "rank": 2}, "arms.recipe.rank 2: .* at least 3"),
        ("recipe", {"mixer": "attention", "rank": 2}, "arms.recipe.rank: the mixer attention"),
        ("figures", {"mixer": "pair"}, "arms.figures: figures is taken"),
        ("study.json", {"mixer": "pair"}, "arms.study.json: study.json is taken"),
    ],
)
def test_an_arm_that_cannot_be_trained_is_refused_by_its_key(name, arm, words):
    arms = {**LANGUAGE["arms"], name: arm}
    with pytest.raises(UserError, match=words):
        check_language({**LANGUAGE, "arms": arms, "study": {"arms": [name], "seeds": [0]}})
    # nobody minds what is not trained
    check_language({**LANGUAGE, "arms": arms, "study": {"arms": ["transformer"], "seeds": [0]}})


def test_the_longest_offset_that_fits_and_those_of_an_arm_without_any():
    assert OFFSETS == pair.OFFSETS
    fits = {**LANGUAGE["arms"], "recipe": {"mixer": "pair", "offsets": [1, 127]}}
    check_language({**LANGUAGE, "arms": fits})
    with pytest.raises(UserError, match="arms.recipe.offsets: 16 does not fit into blocks of 16 tokens"):
        check_language({**LANGUAGE, "model": {"positions": 16}})


@pytest.mark.parametrize(
    "planned, words",
    [([["recipe", "recipe"]], "itself"), ([["recipe", "transformer"], ["transformer", "recipe"]], "twice")],
)
def test_planned_contrasts_are_of_two_arms_and_stand_once(planned, words):
    with pytest.raises(UserError, match=rf"language.comparison.planned: \[.*{words}"):
        check_language({**LANGUAGE, "comparison": {"planned": planned}})
    # an overlay may leave the contrasts of an arm that it does not train
    check_language({**LANGUAGE, "study": {"arms": ["transformer"], "seeds": [0]}})
