"""config/README.md and config/schema.json: current, readable, and as strict as the loader."""

import json

import jsonschema
import pytest
import yaml

from geomix.settings import pages
from tests.conftest import ROOT

WRITE = "`geomix settings --write`"
FILES = [ROOT / "config.yaml", *sorted((ROOT / "config").glob("*.yaml"))]
KEYS = list(pages.keys())


@pytest.fixture(scope="module")
def schema():
    return json.loads((ROOT / "config" / "schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "made"), [("README.md", pages.readme), ("schema.json", pages.schema)])
def test_the_pages_are_those_of_the_settings(name, made):
    # not compared with ==: its diff of thousands of lines would hide the cure
    current = (ROOT / "config" / name).read_text(encoding="utf-8") == made()
    assert current, f"config/{name} is not what the settings say: write it anew with {WRITE}"


def errors(schema, values):
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(values)]


def test_the_schema_is_one(schema):
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_configuration_file_names_the_schema_and_keeps_to_it(schema, path):
    text = path.read_text(encoding="utf-8")
    named = "config/schema.json" if path.parent == ROOT else "schema.json"
    assert text.splitlines()[0] == f"# yaml-language-server: $schema={named}"
    assert not errors(schema, yaml.safe_load(text))


@pytest.mark.parametrize(
    "overlay",
    [
        "trainng: {epochs: 1}",
        "training: {epoch: 1}",
        "model: {intermediate_ctc: {block: [8]}}",
        "corpus: {dev: {hold_out_speaker: [a]}}",
        "arms: {mine: {mixer: pair, kindd: wedge}}",
        "arms: {attention: {context: 4, rank: 8}}",  # keys of two kinds of mixer
        "gate: {targets: [{set: test, werr: 1.0}]}",
        "language: {arms: {mine: {mixer: pair, two_sided: true}}}",
        "algebra: {representation: {step: 1}}",
        "granite: {checkpoints: {a: {pathh: x}}}",
        "training: {epochs: 0}",
        "training: {optimizer: sgd}",
        "training: {learning_rate: 1e-3}",  # text in YAML
    ],
)
def test_the_schema_refuses_unknown_keys_and_wrong_values(schema, overlay):
    assert errors(schema, yaml.safe_load(overlay))


def test_an_overlay_may_leave_out_what_is_required(schema):
    assert not errors(schema, yaml.safe_load("arms: {attention: {heads: 2}}\ntraining: {epochs: 3}"))
    assert not errors(schema, {})


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.path}-{key.kind}")
def test_a_key_is_explained_in_one_short_sentence(key):
    meaning = key.field.description or ""
    assert meaning and len(meaning) < 140 and "\n" not in meaning
    assert not meaning.endswith(".") and ". " not in meaning.replace("e.g. ", "")


def test_the_page_has_a_row_for_each_key():
    page = pages.readme()
    for key in KEYS:
        assert f"\n| `{key.path}` | " in page
    cells = {line.replace("\\|", "").count("|") for line in page.splitlines() if line.startswith("| `")}
    assert cells == {6}, "a bar in a cell breaks the table"
