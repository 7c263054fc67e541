"""Arms: from the configuration to a model, matched counts, and what `geomix arms` prints."""

import pytest

from geomix import cli
from geomix.errors import UserError
from geomix.models.architectures import model_config
from geomix.models.arms import arm_config, arm_sizes, check_matched
from geomix.settings import load, resolve, training_settings
from tests.conftest import ROOT

STUDY = {
    "tokenizer": {"size": 5000},
    "model": {"blocks": 15, "width": 256, "ff_dim": 1024},
    "arms": {
        "attention": {"mixer": "attention", "heads": 4},
        "grassmann": {"mixer": "pair", "kind": "wedge", "gated": True},
        "no_mixer": {"mixer": "none", "ff_dim": 1344},
    },
}


def study(**arms) -> dict:
    return {**STUDY, "arms": {**STUDY["arms"], **arms}}


def test_an_arm_is_a_mixer_and_its_arguments():
    config = arm_config(STUDY, "grassmann", seed=3)
    assert dict(config.mixer) == {"mixer": "pair", "kind": "wedge"} and config.seed == 3 and config.vocab == 5000
    assert (
        arm_config(STUDY, "no_mixer", vocab=30).ff_dim == 1344 and arm_config(STUDY, "no_mixer", vocab=30).vocab == 30
    )


@pytest.mark.parametrize(
    ("config", "arm", "named"),
    [
        (STUDY, "grasman", "grasman"),
        (study(odd={"kind": "wedge"}), "odd", "arms.odd"),
        ({**STUDY, "model": {"mixer": {}}}, "attention", "model.mixer"),
        ({**STUDY, "model": {"blokcs": 3}}, "attention", "blokcs"),
        ({**STUDY, "tokenizer": {"size": None}}, "attention", "tokenizer.size"),
    ],
)
def test_mistakes_are_named(config, arm, named):
    with pytest.raises(UserError, match=named):
        arm_config(config, arm)


def test_an_unmatched_arm_is_refused_unless_it_says_so():
    assert [size.parameters for size in check_matched(STUDY)] == [26_958_472, 26_021_992, 26_945_032]
    thin = {"mixer": "none"}  # without the wider feed-forward: 18 % fewer
    with pytest.raises(UserError, match="arms.thin.*unmatched: true"):
        check_matched(study(thin=thin))
    sizes = check_matched(study(thin={**thin, "unmatched": True}))
    assert sizes[-1].unmatched and sizes[-1].deviation < -0.15


def test_an_arm_has_its_own_convolution():
    config = load(ROOT / "config" / "demo.yaml", base=ROOT / "config.yaml")
    config["arms"]["wide"] = {"mixer": "convolution", "kernel": 5, "conv_kernel": 21}
    config["study"]["arms"] = ["attention", "wide"]
    config["comparison"]["planned"], config["hypothesis"] = [], []
    config = resolve(config)
    settings = training_settings(config, "wide", 0, "own")
    assert settings["model"]["kernel"] == 21 and settings["model"]["mixer"]["kernel"] == 5
    assert training_settings(config, "attention", 0, "own")["model"]["kernel"] == 15
    model = arm_config(config, "wide", 30)
    assert model == model_config({**settings["model"], "vocab": 30, "seed": 0})
    assert {block.conv_module.depthwise_conv.kernel_size for block in model.build().blocks} == {(21,)}
    config["arms"]["wide"]["conv_kernel"] = 8
    with pytest.raises(UserError, match="arms.wide.conv_kernel: 8 is even"):
        resolve(config)


def test_deviation_is_attentions():
    deviations = {size.arm: size.deviation for size in arm_sizes(STUDY)}
    assert deviations["attention"] == 0
    assert deviations["grassmann"] == pytest.approx(-936_480 / 26_958_472)


def test_the_command_prints_the_full_studys_counts(capsys):
    cli.main(["arms"])
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in printed.splitlines()}
    expected = {
        "attention": ("26,958,472", "6.23"), "grassmann": ("26,021,992", "5.51"), "symmetric": ("26,021,992", "5.51"),
        "signed": ("26,021,992", "5.51"), "geometric": ("26,025,832", "5.51"), "no_mixer": ("26,945,032", "5.64"),
        "grassmann_causal": ("26,021,992", "5.51"), "grassmann_one_offset": ("26,021,992", "5.51"),
    }  # fmt: skip
    for arm, (parameters, gflop) in expected.items():
        assert rows[arm][1] == parameters and rows[arm][3] == gflop


def test_overlays_are_merged_as_snakemake_does(tmp_path, capsys):
    overlay = tmp_path / "small.yaml"
    overlay.write_text("tokenizer: {size: 30}\nmodel: {blocks: 2}\narms: {no_mixer: {unmatched: true}}\n")
    cli.main(["arms", "--configfile", str(overlay)])
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert rows["attention"][1] == f"{1_838_080 + 2 * 1_588_992 + 512 + 257 * 30:,}"
    overlay.write_text("model: {blokcs: 2}\n")
    with pytest.raises(SystemExit):
        cli.main(["arms", "--configfile", str(overlay)])
    assert "blokcs" in capsys.readouterr().err
