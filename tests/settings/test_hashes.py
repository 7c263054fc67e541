"""The hash of a training's settings: it stands still in every shipped configuration, and a later key leaves it as it was."""

import copy

import pytest

from geomix.settings import trainings
from geomix.settings.base import Section, key, override, resolved, without_before
from geomix.settings.speech import Training
from geomix.settings.trainings import settings_hash
from tests.conftest import ROOT
from tests.golden import hashes


@pytest.mark.parametrize("overlays", hashes.CONFIGURATIONS, ids=hashes.name_of)
def test_no_training_of_a_shipped_configuration_changes_its_hash(overlays):
    name = hashes.name_of(overlays)
    sentences = hashes.faults(name, hashes.read().get(name, {}), hashes.hashes_of(overlays))
    assert not sentences, "\n".join(sentences)


def test_every_shipped_configuration_is_held():
    held = {overlay for overlays in hashes.CONFIGURATIONS for overlay in overlays}
    assert held == {path.stem for path in (ROOT / "config").glob("*.yaml")}
    assert set(hashes.read()) == {hashes.name_of(overlays) for overlays in hashes.CONFIGURATIONS}


def test_a_change_names_the_configuration_the_training_and_the_cure():
    stored = {"own/attention/seed0": "a", "own/gone/seed0": "b"}
    changed, new, gone = hashes.faults("config.yaml", stored, {"own/attention/seed0": "c", "own/new/seed0": "d"})
    for word in ("config.yaml", "own/attention/seed0", "give a new key a `before`", "tests.golden.write", "commit"):
        assert word in changed
    assert "own/new/seed0: has no stored hash" in new and "own/gone/seed0: is no training" in gone


class Before(Section):
    """A section as it was, with a section inside it."""

    epochs: int = key(70, "passes", "train")


class Inner(Section):
    """A section that got a key later, too."""

    depth: int = key(1, "levels", "train")
    slope: float = key(0.5, "rise", "train", before=0.0)


class After(Before):
    """The same with keys that were added later, one with a default that computes something else than before."""

    smoothing: float = key(0.1, "of the labels", "train", before=0.0)
    ema: float | None = key(None, "decay of a running mean", "train", before=None)
    inner: Inner = key({}, "more")


def told(**values):
    return without_before(resolved(After(**values)), After)


def test_a_later_key_is_left_out_at_the_value_before_it():
    old = without_before(resolved(Before()), Before)
    assert told(smoothing=0.0, inner={"slope": 0.0}) == {**old, "inner": {"depth": 1}}
    # another value is told, be it the default
    assert told()["smoothing"] == 0.1 and told()["inner"] == {"depth": 1, "slope": 0.5}
    assert told(smoothing=0.0, ema=0.9)["ema"] == 0.9
    assert "ema" not in told()


@pytest.fixture
def settings():
    """Settings of a training whose section `training` has every default."""
    model = {"blocks": 2, "mixer": {"mixer": "attention", "heads": 4}}
    versions = {"model": 1, "mixer": 1}
    return {"track": "own", "seed": 0, "versions": versions, "model": model, "training": resolved(Training())}


def test_a_later_key_trains_nothing_again_and_a_changed_default_does(settings, monkeypatch):
    class Later(Training):
        smoothing: float = key(0.0, "of the labels", "train", before=0.0)

    class Changed(Training):
        warmup: int = key(Training().warmup + 1, "updates of the rise", "train")

    old = settings_hash(settings, {"train": "abc"})
    monkeypatch.setattr(trainings, "Training", Later)
    assert settings_hash({**settings, "training": resolved(Later())}, {"train": "abc"}) == old
    assert settings_hash({**settings, "training": resolved(Later(smoothing=0.1))}, {"train": "abc"}) != old
    monkeypatch.setattr(trainings, "Training", Changed)
    assert settings_hash({**settings, "training": resolved(Changed())}, {"train": "abc"}) != old


def test_a_raised_version_is_another_training_and_version_1_is_left_out(settings):
    old = settings_hash(settings, {})
    assert settings_hash({key: value for key, value in settings.items() if key != "versions"}, {}) == old
    found = {old}
    for what in ("model", "mixer"):
        raised = copy.deepcopy(settings)
        raised["versions"][what] = 2
        found.add(settings_hash(raised, {}))
    assert len(found) == 3


def test_an_override_that_an_arm_does_not_name_is_left_out():
    class Arm(Section):
        mixer: str = key(..., "kind", "train")
        ff_dim: int | None = override("its own width", "train")
        init_std: float | None = override("its own spread", "train", null_is_a_value=True)

    assert resolved(Arm(mixer="none")) == {"mixer": "none"}
    assert resolved(Arm(mixer="none", ff_dim=8)) == {"mixer": "none", "ff_dim": 8}
    assert resolved(Arm(mixer="none", ff_dim=None)) == {"mixer": "none"}  # taken back
    assert resolved(Arm(mixer="none", init_std=None)) == {"mixer": "none", "init_std": None}  # a value of its own
