"""Golden outputs of each mixer: code that computes something else is another version."""

import pytest

from geomix.mixers.pair.arguments import CausalPair, Pair
from geomix.mixers.registry import MIXERS
from geomix.settings import load
from tests.conftest import ROOT
from tests.golden import store
from tests.golden.hashes import CONFIGURATIONS
from tests.golden.mixers import CASES, FILE, INSTANCES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_output_is_that_of_its_version(case):
    assert (sentence := store.fault(case, store.read(FILE).get(case.name), case.compute())) is None, sentence


def test_every_mixer_has_a_case():
    assert {case.of for case in CASES} == set(MIXERS) - {"none"}  # an empty slot computes nothing


def form_of(arguments):
    """What of a pair mixer chooses its code."""
    every = {name: field.get_default(call_default_factory=True) for name, field in Pair.model_fields.items()}
    keys = ("kind", "form", "two_sided", "one_offset_per_block", "empty", "gate", "weights", "signs")
    return tuple({**every, **arguments}[key] for key in keys)


@pytest.mark.parametrize("overlays", CONFIGURATIONS, ids="+".join)
def test_every_form_of_the_pair_mixer_in_a_shipped_configuration_has_a_case(overlays):
    config = load(*(ROOT / "config" / f"{name}.yaml" for name in overlays), base=ROOT / "config.yaml")
    causal = {key: False for key in set(Pair.model_fields) - set(CausalPair.model_fields)}
    speech = [arm for arm in config["arms"].values() if arm.get("mixer") == "pair"]
    language = [{**arm, **causal} for arm in config["language"]["arms"].values() if arm["mixer"] == "pair"]
    known = {form_of(arguments) for arguments in INSTANCES.values() if arguments["mixer"] == "pair"}
    assert {form_of(arm) for arm in speech + language} <= known


def case_like(**changes):
    return store.Case(**{"name": "mine", "of": "pair", "version": 1, "compute": dict, **changes})


def test_a_change_says_raise_the_version_and_a_raised_version_says_write_anew():
    stored = store.Golden(1, {"output": [1.0, 2e-8]})
    assert store.fault(case_like(), stored, {"output": [1 + 5e-7, 0.0]}) is None  # rounding
    changed = store.fault(case_like(), stored, {"output": [1 + 5e-6, 2e-8]})
    assert "raise its version" in changed and "arguments.py in src/geomix/mixers" in changed and store.WRITE in changed
    assert store.fault(case_like(), stored, {"output": [float("nan"), 2e-8]}) == changed
    raised = store.fault(case_like(version=2), stored, {"output": [7.0, 2e-8]})
    assert "version 1" in raised and "version 2" in raised and "write them anew" in raised and store.WRITE in raised
    assert "no golden values" in store.fault(case_like(), None, {"output": [1.0]})


def test_a_changed_output_is_not_written_under_its_old_version(tmp_path):
    path = tmp_path / "values.json"
    store.write(path, {"mine": store.Golden(1, {"output": [1.0]})})
    golden, refused = store.renewed(path, [case_like(compute=lambda: {"output": [2.0]})])
    assert golden["mine"].values == {"output": [1.0]} and "raise that first" in refused[0]
    golden, refused = store.renewed(path, [case_like(version=2, compute=lambda: {"output": [2.0]})])
    assert golden["mine"] == store.Golden(2, {"output": [2.0]}) and not refused
