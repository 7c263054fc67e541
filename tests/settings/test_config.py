"""A wrong key or value is refused by name; what counts as a setting is what changes a result."""

import copy

import pytest

from geomix.errors import UserError
from geomix.espnet_track.settings import check_study
from geomix.settings import evaluation_sets, load, read_layer, resolve, settings_hash, training_settings
from tests.conftest import ROOT

OVERLAYS = sorted((ROOT / "config").glob("*.yaml"))


@pytest.fixture
def config():
    found = load(base=ROOT / "config.yaml")
    found["arms"]["same"] = {"mixer": "attention", "heads": 4}
    return found


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.stem)
def test_every_shipped_overlay_is_valid(overlay):
    load(overlay, base=ROOT / "config.yaml")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("trainng",), {}, ["trainng", "training"]),
        (("run",), "a" * 101, ["run", "100 letters"]),
        (("study", "seeds"), [2**32], ["study.seeds", "4294967296", "2147483647"]),
        (("comparison", "seed"), -1, ["comparison.seed", "-1"]),
        (("corpus", "min_seconds"), 31.0, ["corpus.min_seconds 31", "max_seconds 30"]),
        (("model", "blokcs"), 3, ["model", "blokcs", "blocks"]),
        (("training", "optimizer"), "sgd", ["training.optimizer", "sgd", "adam"]),
        (("training", "epochs"), 0, ["training.epochs", "0"]),
        (("model", "kernel"), 30, ["model.kernel", "30"]),
        (("arms", "grassmann", "kindd"), "wedge", ["arms.grassmann", "kindd", "kind"]),
        (("arms", "attention", "gated"), True, ["arms.attention.gated"]),
        (("study", "arms"), ["attention", "grasmann"], ["study.arms", "grasmann", "grassmann"]),
        (("comparison", "planned"), [["grassmann", "atention"]], ["comparison.planned", "atention"]),
        (
            ("gate", "targets"),
            [{"set": "test-claen", "wer": 9.8, "tolerance": 0.3}],
            ["gate.targets", "test-claen", "test-clean"],
        ),
        (("corpus", "speed_factors"), [0.9, 1.1], ["corpus.speed_factors", "[0.9, 1.1]", "1.0"]),
        (("training", "learning_rate"), float("nan"), ["training.learning_rate", "nan", "finite"]),
        (
            ("gate", "targets"),
            [{"set": "test-clean", "wer": float("inf"), "tolerance": 0}],
            ["gate.targets.0.wer", "inf"],
        ),
        (("arms", "attention", "heads"), 3, ["arms.attention.heads", "3", "256"]),
        (("language", "arms", "transformer", "heads"), 7, ["language.arms.transformer.heads", "7"]),
        (("algebra", "components", "arms", "positions", "heads"), 7, ["algebra.components.arms.positions.heads", "7"]),
        (
            ("algebra", "architectures", "arms", "clifford", "feed_forward", "rank"),
            3,
            ["algebra.architectures.arms.clifford.feed_forward", "rank", "low_rank alone"],
        ),
        (("arms", "grassmann", "projections"), {"map": "clifford"}, ["arms.grassmann", "unknown key 'projections'"]),
        (("language", "gate", "low"), 300.0, ["language.gate.low", "300", "253.6"]),
        (("training", "epochs"), 70.0, ["training.epochs", "70.0", "whole", "write 70"]),
        (("training", "max_updates"), 5.0, ["training.max_updates", "5.0", "whole"]),
        (("language", "corpus", "vocabulary"), 4096.0, ["language.corpus.vocabulary", "4096.0", "whole"]),
        (("features", "mels"), 80.0, ["features.mels", "80.0", "whole number: write 80"]),
        (("comparison", "planned"), [["grassmann"] * 2], ["comparison.planned", "[grassmann, grassmann]", "itself"]),
        (
            ("comparison", "planned"),
            [["grassmann", "attention"], ["attention", "grassmann"]],
            ["comparison.planned", "[attention, grassmann]", "twice"],
        ),
        (("run",), "speed", ["run", "results/speed"]),
        (("run",), "published", ["run", "results/published"]),
        (("training", "learning_rate"), "1e-3", ["training.learning_rate", "1e-3", "text", "write 1.0e-3"]),
        (("training",), None, ["training", "no value"]),
        (("model", "blocks"), None, ["model.blocks", "no value"]),
        (("arms", "mine"), {"mixer": "pears"}, ["arms.mine", "'pears'", "pair"]),
        (("arms", "mine"), {"kind": "wedge"}, ["arms.mine", "mixer"]),
        (("corpus", "dev"), {"hold_out_speaker": ["a"]}, ["corpus.dev", "hold_out_speaker", "hold_out_speakers"]),
        (
            ("corpus", "test"),
            {"test-clean": ["a"], "test-other": ["b"], "train": ["c"]},
            ["corpus.test", "called train"],
        ),
        (("corpus", "test"), {"test-clean": ["a"], "test-other": ["b"], "dev": ["dev-clean"]}, ["corpus.test", "dev"]),
        (("study", "seeds"), [0, 0], ["study.seeds", "0 twice"]),
        (("study", "seeds"), 0, ["study.seeds", "0", "list"]),
        (("corpus", "test"), ["test-clean"], ["gate.targets", "test-other", "not an evaluation set"]),
        (
            ("gate", "fallback", "targets"),
            [{"set": "test", "wer": 9}],
            ["gate.fallback.targets", "gate.fallback: null"],
        ),
        (("study", "arms"), ["attention", "same"], ["study.arms", "attention and same", "same training"]),
        (("algebra", "run"), "bench", ["algebra.run", "results/bench"]),
        (("language", "training", "device"), "gpu", ["language.training.device", "gpu", "cuda"]),
    ],
)
def test_a_wrong_key_or_value_is_named(config, path, value, words):
    *parents, last = path
    place = config
    for key in parents:
        place = place[key]
    place[last] = value
    with pytest.raises(UserError) as error:
        resolve(config)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("model", "batch_norm"), "masked", ["attention", "model.batch_norm", "masked"]),
        (("training", "max_updates"), 100, ["training.max_updates"]),
        (("training", "best_by"), "dev_wer", ["training.best_by", "dev_wer"]),
    ],
)
def test_what_espnet_cannot_do_is_refused_before_anything_runs(config, path, value, words):
    config[path[0]][path[1]] = value
    with pytest.raises(UserError) as error:
        check_study(config)
    assert all(word in str(error.value) for word in words)
    config["study"]["tracks"] = ["own"]
    with pytest.raises(UserError):  # the gate's arm is trained there still
        check_study(config)
    config["gate"] |= {"track": "own", "fallback": None}
    check_study(config)


def test_missing_files_and_bad_yaml_are_named(tmp_path):
    with pytest.raises(UserError, match="no-such.yaml"):
        load(tmp_path / "no-such.yaml", base=ROOT / "config.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("run: [")
    with pytest.raises(UserError, match="bad.yaml"):
        load(bad, base=ROOT / "config.yaml")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("run: a\nrun: b\n", 2),
        ("training: {epochs: 3}\nrun: a\ntraining: {warmup: 9}\n", 3),
        ("study:\n  seeds: [0]\n  'seeds': [1]\n", 3),
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path, text, line):
    """YAML's reader would keep the last in silence; a key of two sections is none."""
    path = tmp_path / "twice.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=f"twice.yaml: line {line} has the key '[a-z]+' a second time"):
        read_layer(path)
    path.write_text("training: {epochs: 3}\nlanguage: {training: {epochs: 3}}\n")
    assert read_layer(path)["language"] == {"training": {"epochs": 3}}


def test_arms_that_differ_by_capitals_alone_are_refused(config):
    config["arms"]["Attention"] = {"mixer": "none", "unmatched": True}
    config["study"]["arms"] = ["attention", "Attention"]
    with pytest.raises(UserError, match="'attention' and 'Attention', one folder where capitals do not count"):
        resolve(config)


def settings(config, arm="grassmann", seed=0):
    return settings_hash(training_settings(config, arm, seed, "own"), {"train": "abc"})


@pytest.mark.parametrize(
    ("path", "value"),
    [(("training", "epochs"), 71), (("arms", "grassmann", "rank"), 16), (("augmentation", "time_masks"), 4),
     (("model", "dropout"), 0.2), (("training", "precision"), "fp32"), (("features", "dtype"), "float16")],
)  # fmt: skip
def test_a_setting_changes_the_hash(config, path, value):
    before = settings(config)
    place = config
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert settings(config) != before


@pytest.mark.parametrize(
    ("path", "value"),
    [(("training", "threads"), 16), (("training", "device"), "cpu"), (("training", "save_minutes"), 1), (("arms", "symmetric", "rank"), 16),
     (("arms", "grassmann", "gated"), False), (("corpus", "path"), "/elsewhere"), (("study", "seeds"), [7]), (("hypothesis",), "none"),
     (("training", "keep_best"), 3), (("training", "best_by"), "dev_wer"), (("training", "detect_after"), None),
     (("corpus", "test"), ["test-clean"]), (("corpus", "expected"), {"train-clean-100": {"words": 1}}), (("corpus", "audio_root"), "/x")],
)  # fmt: skip
def test_what_cannot_change_the_weights_is_no_setting(config, path, value):
    before = settings(config)
    place = config
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert settings(config) == before


def test_seeds_arms_and_data_tell_trainings_apart(config):
    names = {settings(config, arm, seed) for arm in config["study"]["arms"] for seed in config["study"]["seeds"]}
    assert len(names) == 12
    one = training_settings(config, "attention", 0, "own")
    assert settings_hash(one, {"train": "abc"}) != settings_hash(one, {"train": "abd"})


def test_evaluation_sets_of_lists_and_held_out_speakers(config):
    assert evaluation_sets(config) == ["dev-clean", "dev-other", "test-clean", "test-other"]
    held_out = copy.deepcopy(config)
    held_out["corpus"]["test"] = {"held-out": {"hold_out_speakers": ["118"]}}
    assert evaluation_sets(held_out) == ["held-out"]
