"""The section `language`: what an arm's keys mean, what changes a training and what does not, what is refused by its key."""

import copy
import inspect

import pytest

from geomix.errors import UserError
from geomix.mixers import PairMixer
from geomix.mixers.pair.arguments import CausalPair
from geomix.models.arms import check_language_matched, language_sizes
from geomix.settings import language_training_settings, language_trainings_of, load, resolve, settings_hash, stages
from tests.conftest import ROOT

RECIPE = {"mixer": "pair", "rank": 8, "norm": "pre", "warmup": 100, "gated": True, "seeds": [3]}


def studied(config, *, trained=True, name="recipe", **arm):
    """The configuration with an arm more in its language study, trained or not; without `arm`, RECIPE."""
    config = copy.deepcopy(config)
    language = config["language"]
    language["arms"][name] = arm or RECIPE
    language["study"] = {"arms": ["transformer", *([name] if trained else [])], "seeds": [0, 1]}
    language["comparison"]["planned"] = []
    return config


@pytest.fixture(scope="module")
def full():
    return load(base=ROOT / "config.yaml")


@pytest.fixture
def config(full):
    return resolve(studied(full))


def test_an_arms_keys_go_where_they_belong(config):
    language = config["language"]
    found = language_training_settings(language, "recipe", 3)
    assert found["model"] == {
        **language["model"],
        "norm": "pre",
        "mixer": CausalPair(mixer="pair", rank=8).model_dump(),
    }
    assert found["training"]["warmup"] == 100
    other = language_training_settings(language, "transformer", 0)
    assert other["model"] == {**language["model"], "mixer": {"mixer": "attention", "heads": 4}}
    assert other["training"] == {**found["training"], "warmup": 1}
    assert (found["seed"], found["track"], other["seed"]) == (3, "language", 0)
    for neutral in ("threads", "device", "log_every", "save_minutes", "detect_after"):
        assert neutral not in found["training"]


def test_an_arm_has_its_own_depth_blocks_of_tokens_and_batch(full):
    own = {"blocks": 12, "positions": 256, "batch": 16, "init_std": 0.02}
    language = resolve(studied(full, mixer="pair", offsets=[200], **own))["language"]
    settings = language_training_settings(language, "recipe", 0)
    assert {key: settings["model"][key] for key in ("blocks", "positions", "init_std")} == {
        key: own[key] for key in ("blocks", "positions", "init_std")
    }
    assert settings["training"]["batch"] == 16 and set(settings["model"]["mixer"]) == set(CausalPair.model_fields)
    sizes = {size.arm: size.parameters for size in language_sizes({**language, "run": "full"}, 30_522)}
    # of the published twelve layers with a table of 256 positions (the paper's counts without its extra map)
    assert sizes == {"transformer": 12_585_472, "recipe": 17_400_192}
    # a section in the same place says what stands for the table
    table = resolve(studied(full, mixer="pair", positions={"table": "none"}))["language"]
    assert language_training_settings(table, "recipe", 0)["model"]["replaced"] == {"positions": {"table": "none"}}
    with pytest.raises(UserError, match=r"language.arms.recipe.positions: 0 is less than 1"):
        resolve(studied(full, mixer="pair", positions=0))


def test_sizes_are_held_against_the_baseline_whatever_an_arm_sets(full):
    config = studied(full, mixer="attention", blocks=12)
    config["language"]["study"]["baseline"] = "transformer"
    with pytest.raises(UserError, match="arm recipe: 17,324,032 parameters are .37.7 % from transformer"):
        check_language_matched({**resolve(config)["language"], "run": "full"}, 30_522)


@pytest.mark.parametrize(
    "path, value, changes",
    [
        (("training", "threads"), 8, False),
        (("training", "device"), "cuda", False),
        (("training", "detect_after"), None, False),
        (("corpus", "path"), "/elsewhere", False),
        (("corpus", "vocabulary"), 4096, False),  # the hashes of the prepared tokens stand for it
        (("arms", "transformer", "gated"), True, False),
        (("arms", "recipe", "rank"), 9, False),  # another arm's
        (("training", "epochs"), 3, True),
        (("arms", "transformer", "heads"), 8, True),
        (("arms", "transformer", "learning_rate"), 0.1, True),
        (("arms", "transformer", "norm"), "pre", True),
    ],
)
def test_what_changes_a_training(config, path, value, changes):
    def hashed():
        return settings_hash(language_training_settings(config["language"], "transformer", 0), {})

    before = hashed()
    place = config["language"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert (hashed() != before) == changes


@pytest.mark.parametrize(("key", "value", "other"), [("path", "/elsewhere", False), ("vocabulary", 4096, True)])
def test_tokens_are_named_by_what_they_are_made_with(config, key, value, other):
    text = config["language"]["corpus"]
    assert (stages.text_key({**text, key: value}) != stages.text_key(text)) == other


def test_trainings_are_the_studys_seeds_or_the_arms_own(config):
    assert language_trainings_of(config["language"]) == [("transformer", 0), ("transformer", 1), ("recipe", 3)]


def test_unknown_arms_are_named(full):
    config = studied(full)
    config["language"]["study"]["arms"] = ["grasmann"]
    with pytest.raises(UserError, match="language.study.arms names 'grasmann'.*'grassmann'"):
        resolve(config)
    config = studied(full)
    config["language"]["gate"]["arm"] = "recipe"
    with pytest.raises(UserError, match="language.arms.recipe.gated"):
        resolve(config)


@pytest.mark.parametrize(
    "name, arm, words",
    [
        ("recipe", {"mixer": "pair", "offsets": [64, 500]}, r"arms.recipe.offsets: 500 .* 128 tokens"),
        ("recipe", {"mixer": "pair", "offsets": [128], "one_offset_per_block": True}, "arms.recipe.offsets: 128 "),
        ("recipe", {"mixer": "pair", "kind": "signed", "rank": 2}, "arms.recipe.rank 2: .* at least 3"),
        ("recipe", {"mixer": "attention", "heads": 7}, "arms.recipe.heads 7 does not divide language.model.width 256"),
        ("figures", {"mixer": "pair"}, "arms.figures: figures is taken"),
        ("study.json", {"mixer": "pair"}, "arms.study.json: study.json is taken"),
    ],
)
def test_an_arm_that_cannot_be_trained_is_refused_by_its_key(full, name, arm, words):
    with pytest.raises(UserError, match=f"language.{words}"):
        resolve(studied(full, name=name, **arm))
    # nobody minds what is not trained
    resolve(studied(full, name=name, trained=False, **arm))


@pytest.mark.parametrize(
    "arm, words",
    [
        ({"mixer": "pair", "heads": 2}, "unknown key 'heads'"),
        ({"mixer": "attention", "rank": 2}, "unknown key 'rank'"),
        ({"mixer": "pair", "two_sided": True}, "unknown key 'two_sided'"),  # a language model sees the past alone
    ],
)
@pytest.mark.parametrize("trained", [True, False])
def test_a_key_of_another_mixer_is_refused_wherever_it_stands(full, arm, words, trained):
    with pytest.raises(UserError, match=f"language.arms.recipe: {words}"):
        resolve(studied(full, trained=trained, **arm))


def test_the_longest_offset_that_fits_and_those_of_an_arm_without_any(full):
    default = inspect.signature(PairMixer).parameters["offsets"].default
    assert CausalPair(mixer="pair").offsets == list(default)
    resolve(studied(full, mixer="pair", offsets=[1, 127]))
    config = studied(full)
    config["language"]["model"]["positions"] = 16
    with pytest.raises(UserError, match="arms.recipe.offsets: 16 does not fit into blocks of 16 tokens"):
        resolve(config)


@pytest.mark.parametrize(
    "planned, words",
    [([["recipe", "recipe"]], "itself"), ([["recipe", "transformer"], ["transformer", "recipe"]], "twice")],
)
def test_planned_contrasts_are_of_two_arms_and_stand_once(full, planned, words):
    for trained in (True, False):
        config = studied(full, trained=trained)
        config["language"]["comparison"]["planned"] = planned
        with pytest.raises(UserError, match=rf"language.comparison.planned: \[.*{words}"):
            resolve(config)
    # an overlay may leave the contrasts of an arm that it does not train
    config["language"]["comparison"]["planned"] = [["recipe", "transformer"]]
    resolve(config)
