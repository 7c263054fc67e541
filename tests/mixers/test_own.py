"""A mixer of a user's own: found and checked without being run, hashed by what it says, made, tried out, counted, kept."""

import sys
import textwrap

import pytest
import torch

from geomix import cli
from geomix.errors import UserError
from geomix.espnet_track.settings import check_study
from geomix.mixers import Frames, make_mixer
from geomix.mixers.own.source import FILE, find
from geomix.models.architectures import model_config
from geomix.models.arms import arm_sizes
from geomix.models.saved import load_model, save_model
from geomix.settings import load, resolve, settings_hash, training_settings
from geomix.studies.base import describe
from geomix.studies.speech import SPEECH
from tests.conftest import ROOT

MIXER = '''
"""A mixer."""
import torch
from torch import nn


class Mean(nn.Module):
    """Adds the mean of the frames."""

    def __init__(self, width, hidden, scale=1.0, *, seed=0, block=0):
        super().__init__()  # a comment
        self.down, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width)
        self.scale, self.seed, self.block = scale, seed, block

    def forward(self, x, frames):
        real = frames.mask.unsqueeze(-1)
        return self.scale * self.up(self.down((x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True))).expand_as(x)


class Other(Mean):
    pass
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MIXER)
    return tmp_path


def study(**arm):
    """The full study on the track own with an arm `mine`."""
    config = load(base=ROOT / "config.yaml")
    config["arms"]["mine"] = {"mixer": "mine.py:Mean", "hidden": 8, "unmatched": True, **arm}
    config["study"] |= {"arms": ["attention", "mine"], "tracks": ["own"], "track_seeds": {}}
    config["comparison"]["planned"] = []
    config["gate"] = None
    config["language"]["arms"] = {}
    return config


def hashed(**arm):
    return settings_hash(training_settings(resolve(study(**arm)), "mine", 0, "own"), {})


def test_a_file_is_an_arm(folder):
    config = resolve(study(scale=0.5))
    arm = config["arms"]["mine"]
    assert (arm["hidden"], arm["scale"]) == (8, 0.5) and len(arm["mixer_source"]) == 12
    assert resolve(config) == config
    settings = training_settings(config, "mine", 0, "own")
    assert settings["model"]["mixer"] == {key: arm[key] for key in ("mixer", "hidden", "scale", "mixer_source")}
    assert settings["versions"] == {"model": 1}
    size = arm_sizes(config)[-1]
    base = model_config({**settings["model"], "mixer": {"mixer": "none"}, "vocab": 5000})
    assert size.parameters == base.parameters() + 15 * (2 * 256 * 8 + 256) and size.from_linear_maps
    model = model_config({**settings["model"], "vocab": 50, "seed": 3})
    assert model.macs_per_frame(100) == base.macs_per_frame(100) - 256 * 4950 + 15 * 2 * 256 * 8
    assert [block.mixer.block for block in model.build().blocks] == list(range(15))
    assert model.build().blocks[2].mixer.seed == 3


EDITS = {
    "a comment": ("# a comment", "# another one"),
    "docstrings": ('"""Adds the mean of the frames."""', '"""Something else."""'),
    "no docstring": ('    """Adds the mean of the frames."""\n', ""),
    "layout": ("self.scale, self.seed, self.block = scale, seed, block", "(self.scale,  self.seed, self.block) = (\n scale, seed, block)"),
    "another number": ("scale=1.0", "scale=2.0"),
    "another type": ("scale=1.0", "scale=1"),
    "another name": ("self.up = ", "self.high = "),
    "another class": ("    pass", "    factor = 2"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_what_the_file_says_is_a_setting_and_how_it_is_written_is_not(folder, edit):
    before = hashed()
    text = (folder / "mine.py").read_text()
    assert EDITS[edit][0] in text
    (folder / "mine.py").write_text(text.replace(*EDITS[edit]))
    assert (hashed() != before) == edit.startswith("another")


def test_the_hash_is_that_of_every_python(folder):
    """Held, since a training is found again by it."""
    assert find({"mixer": "mine.py:Mean"}).hash == "a73871750fee"


def test_where_the_file_lies_is_no_setting_and_its_class_is(folder):
    before = hashed()
    (folder / "lib").mkdir()
    (folder / "mine.py").rename(folder / "lib" / "moved.py")
    assert hashed(mixer="lib/moved.py:Mean") == before
    assert hashed(mixer="lib/moved.py:Other") != before
    assert hashed(mixer="lib/moved.py:Mean", hidden=9) != before


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ({"mixer": "mien.py:Mean"}, ["arms.mine", "mien.py", "no such file", "did you mean 'mine.py'"]),
        ({"mixer": "nowhere/x.py:Mean"}, ["nowhere/x.py", "paths start at"]),
        ({"mixer": "mine.py:Meann"}, ["mine.py has no class 'Meann'", "did you mean 'Mean'"]),
        ({"mixer": "mine.py:"}, ["'mine.py:'", "path/to/file.py:Class"]),
        ({"mixer": "no_such_package.part:Mean"}, ["no module no_such_package", "path/to/file.py:Class"]),
        ({"mixer": "json.nothing:Mean"}, ["no module json.nothing"]),
        ({"hiden": 3}, ["arms.mine", "takes no 'hiden'", "did you mean 'hidden'"]),
        ({"width": 3}, ["'width' is given"]),
        ({"dropout": 0.1}, ["'dropout' is given"]),
        ({"mixer": "mine.py:Other", "hiden": 3}, ["takes no 'hiden'"]),
    ],
)  # fmt: skip
def test_a_mistake_is_a_sentence_before_anything_runs(folder, arm, words):
    (folder / "mine.py").write_text(MIXER + "\nraise AssertionError('was run')\n")
    with pytest.raises(UserError) as error:
        resolve(study(**arm))
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("hidden, scale", "hidden, other, scale", ["needs 'other'"]),
        ("class Mean(nn.Module):", "class Mean(nn.Module:", ["mine.py, line 7"]),
        ("import torch\n", "import helper\n", ["line 3", "helper", "beside it"]),
        ("import torch\n", "from . import helper\n", ["line 3", "relatively"]),
        ("(self, width, hidden, scale=1.0, *, seed=0, block=0)", "(self)", ["takes no width"]),
    ],
)
def test_a_file_that_cannot_serve_is_a_sentence(folder, old, new, words):
    (folder / "helper.py").write_text("")
    assert old in MIXER
    (folder / "mine.py").write_text(MIXER.replace(old, new))
    with pytest.raises(UserError) as error:
        resolve(study())
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("class Mean(nn.Module)", "class Mean", ["Mean is no torch.nn.Module"]),
        ("import torch\n", "import no_such_thing\n", ["cannot be loaded", "no_such_thing", "line 3"]),
        ("super().__init__()", "super().__init__(); 1 / 0", ["cannot be made", "ZeroDivisionError", "line 11"]),
        ("real = ", "real = x.no_such / ", ["fails in forward", "no_such", "line 16"]),
        (".expand_as(x)", "", ["returns (2, 1, 256)", "(2, 9, 256)"]),
        ("(x * real)", "x", ["beside a longer one", "frames.mask"]),
        ("return self.scale", "return x.log() + self.scale", ["NaN"]),
        ("def forward", "macs_per_frame = 3\n\n    def forward", ["macs_per_frame(frames)"]),
    ],
)  # fmt: skip
def test_a_mixer_that_does_not_work_is_refused_when_the_study_is_described(folder, old, new, words):
    assert old in MIXER
    (folder / "mine.py").write_text(MIXER.replace(old, new))
    (folder / "tokens.txt").write_text("a\n" * 20)
    config = resolve(study())
    with pytest.raises(UserError) as error:
        describe(SPEECH, config, {"tokens": folder / "tokens.txt"}, folder / "study.json")
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value) and not (folder / "study.json").exists()


def test_its_own_multiply_adds_and_a_constructor_that_reads_its_weights(folder, capsys):
    text = MIXER.replace(
        "def forward", "def macs_per_frame(self, frames):\n        return 7 * frames\n\n    def forward"
    )
    (folder / "mine.py").write_text(
        text.replace("self.scale, self", "float(self.up.weight.sum())\n        self.scale, self")
    )
    config = resolve(study())
    settings = training_settings(config, "mine", 0, "own")
    model, empty = (
        model_config({**settings["model"], "vocab": 50, **change}) for change in ({}, {"mixer": {"mixer": "none"}})
    )
    assert model.macs_per_frame(100) == empty.macs_per_frame(100) + 15 * 700
    assert not model.counted_from_linear_maps


def test_geomix_arms_marks_what_was_counted_from_linear_maps(folder, capsys):
    (folder / "config.yaml").write_bytes((ROOT / "config.yaml").read_bytes())
    (folder / "mine.yaml").write_text("arms: {mine: {mixer: 'mine.py:Mean', hidden: 8, unmatched: true}}\n")
    cli.main(["arms", "--configfile", "mine.yaml"])
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert rows["mine"].endswith("mine.py:Mean hidden=8  (unmatched)  (counted from its linear maps)")
    assert sum("counted from" in row for row in rows.values()) == 1


def small(**mixer):
    values = {"vocab": 20, "blocks": 1, "width": 16, "ff_dim": 16, "kernel": 3}
    return model_config({**values, "mixer": {"mixer": "mine.py:Mean", "hidden": 4, **mixer}})


def outputs(model):
    features = torch.randn(2, 60, 80, generator=torch.Generator().manual_seed(0))
    return model.log_probs(features, torch.tensor([60, 41]))[0]


def test_a_saved_model_loads_from_the_source_beside_it_whatever_became_of_the_original(folder):
    source = find({"mixer": "mine.py:Mean"}).hash
    model = small(mixer_source=source, scale=3.0).build().eval()
    (folder / "mine.py").write_text(MIXER.replace("self.scale *", "self.scale * 2 *"))
    save_model(model, folder / "model")  # the source is the one that the model was made from
    assert (folder / "model" / FILE).read_text() == MIXER
    for change in (lambda: None, (folder / "mine.py").unlink):
        change()
        assert torch.equal(outputs(load_model(folder / "model")), outputs(model))
    again = load_model(folder / "model")
    (folder / "model").rename(folder / "moved")
    save_model(again, folder / "copy")
    assert torch.equal(outputs(load_model(folder / "copy")), outputs(model))
    assert "mixer_file" not in (folder / "copy" / "model.yaml").read_text()
    (folder / "copy" / FILE).write_text(MIXER.replace("scale=1.0", "scale=2.0"))
    with pytest.raises(UserError, match="copy/mixer_source.py: was edited"):
        load_model(folder / "copy")
    (folder / "copy" / FILE).unlink()
    with pytest.raises(UserError, match="copy/mixer_source.py: no such file"):
        load_model(folder / "copy")


def test_files_of_one_name_do_not_collide(folder):
    (folder / "other").mkdir()
    (folder / "other" / "mine.py").write_text(MIXER.replace("self.scale *", "-self.scale *"))
    torch.manual_seed(0)
    one, two = (make_mixer(f"{place}mine.py:Mean", 16, hidden=4) for place in ("", "other/"))
    two.load_state_dict(one.state_dict())
    x, frames = torch.randn(1, 5, 16), Frames.of(torch.tensor([5]), 5)
    assert torch.equal(one(x, frames), -two(x, frames))
    assert type(make_mixer("mine.py:Mean", 16, hidden=4)) is type(one)


def test_a_file_edited_while_a_run_goes_on_trains_nothing(folder):
    config = small(mixer_source=find({"mixer": "mine.py:Mean"}).hash)
    (folder / "mine.py").write_text(MIXER + "\n# a remark\n")
    config.build()
    (folder / "mine.py").write_text(MIXER.replace("scale=1.0", "scale=2.0"))
    with pytest.raises(UserError, match="was edited since this run began"):
        config.build()


def test_a_package_is_found_without_importing_it_and_keeps_its_relative_imports(folder, monkeypatch):
    package = folder / "site" / "my_package" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("import sys\nsys.my_package_was_imported = True\n")
    (package / "__init__.py").write_text("")
    (package / "numbers.py").write_text("TWO = 2\n")
    (package / "mean.py").write_text(
        MIXER.replace("import torch\n", "from .numbers import TWO\n").replace("self.scale *", "TWO *")
    )
    monkeypatch.syspath_prepend(folder / "site")
    name = "my_package.inner.mean:Mean"
    try:
        config = resolve(study(mixer=name))
        assert not hasattr(sys, "my_package_was_imported") and "my_package" not in sys.modules
        model = small(mixer=name, mixer_source=config["arms"]["mine"]["mixer_source"]).build().eval()
        save_model(model, folder / "model")
        (package / "mean.py").unlink()
        assert torch.equal(outputs(load_model(folder / "model")), outputs(model))
    finally:
        for module in [module for module in sys.modules if module.split(".")[0] == "my_package"]:
            del sys.modules[module]
        sys.__dict__.pop("my_package_was_imported", None)


def test_positions_are_made_for_a_mixer_that_asks(folder):
    text = textwrap.dedent("""
        from torch import nn

        class Positioned(nn.Module):
            needs_positions = True

            def __init__(self, width):
                super().__init__()
                self.map = nn.Linear(width, width)

            def forward(self, x, frames):
                return self.map(x) + frames.positions[0, frames.positions.shape[1] // 2]
    """)
    (folder / "positioned.py").write_text(text)
    model = small(mixer="positioned.py:Positioned")
    model = model_config({**model.to_dict(), "mixer": {"mixer": "positioned.py:Positioned"}})
    assert model.parameters() == sum(p.numel() for p in model.build().parameters())
    outputs(model.build().eval())


def test_both_tracks_train_it(folder):
    config = study()
    config["study"]["tracks"] = ["own", "espnet"]
    check_study(resolve(config))


def test_the_language_study_says_that_it_is_for_speech(folder):
    config = load(base=ROOT / "config.yaml")
    config["language"]["arms"]["mine"] = {"mixer": "mine.py:Mean"}
    with pytest.raises(UserError, match="language.arms.mine: a mixer of your own .* speech study alone"):
        resolve(config)
