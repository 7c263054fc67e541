"""The Slurm profile knows every training rule by name: a rule it does not know would train on the CPU partition in silence."""

import shutil

import pytest
import yaml

from tests.conftest import ROOT
from tests.net import ON_CPUS, TRAINING_SCRIPT, rules_of, slurm_faults


@pytest.fixture
def checkout(tmp_path):
    for name in ("rules", "slurm"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "Snakefile", tmp_path)
    return tmp_path


def test_every_training_rule_asks_for_one_a100_and_every_entry_is_a_rule():
    assert slurm_faults(ROOT) == []


def test_every_training_script_belongs_to_a_rule():
    """Else the test above would look for trainings where there are none."""
    scripts = {path.name for path in (ROOT / "workflow_scripts").glob("*.py") if TRAINING_SCRIPT.search(path.name)}
    assert len(scripts) >= 2
    assert scripts <= set(rules_of(ROOT).values())


def test_an_exempt_rule_stands_in_the_profile_nowhere():
    asked = yaml.safe_load((ROOT / "slurm" / "config.yaml").read_text(encoding="utf-8"))["set-resources"]
    assert not set(asked) & set(ON_CPUS)


def training_rules():
    return sorted(name for name, script in rules_of(ROOT).items() if TRAINING_SCRIPT.search(script))


@pytest.mark.parametrize("rule", training_rules())
def test_a_renamed_training_rule_is_found(checkout, rule):
    for path in (checkout / "rules").glob("*.smk"):
        text = path.read_text(encoding="utf-8")
        text = text.replace(f"rule {rule}:", "rule learn:").replace(f" as {rule} with:", " as learn with:")
        path.write_text(text, encoding="utf-8")
    faults = slurm_faults(checkout)
    assert any(fault.startswith("learn trains") for fault in faults)
    assert f"set-resources names {rule}, which is no rule" in faults


@pytest.mark.parametrize(("old", "new"), [("gpu: 1", "gpu: 2"), ("gpu_model: a100", "gpu_model: h100")])
def test_other_resources_are_found(checkout, old, new):
    path = checkout / "slurm" / "config.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert any("not for one a100" in fault for fault in slurm_faults(checkout))
