"""The README says what is so: its example is the tested one, its commands, targets and files exist, its claims are the records'."""

import re

import pytest

from geomix.cli import COMMANDS
from geomix.commands.claims import BEGIN, END, all_claims
from geomix.report.claims import claims_table
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_is_the_one_that_the_tests_run():
    tested = (ROOT / "tests" / "mixers" / "test_example.py").read_text(encoding="utf-8")
    example = tested.split("# example\n")[1].split("# end")[0].strip()
    assert example in README


def test_every_command_named_exists_and_every_command_is_named():
    named = set(re.findall(r"^geomix (\w+)", README, re.MULTILINE))
    assert named <= set(COMMANDS)
    assert set(COMMANDS) - named <= {"claims"}


def test_targets_and_overlays_exist():
    rules = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "Snakefile", *(ROOT / "rules").glob("*.smk")])
    for target in re.findall(
        r"^\| `(\w+)`(?: \(default\))? \| ", README.split("## Targets")[1].split("\n## ")[0], re.MULTILINE
    ):
        assert re.search(rf"^ *rule {target}:", rules, re.MULTILINE), target
    for overlay in re.findall(r"config/(\w+)\.yaml", README):
        assert (ROOT / "config" / f"{overlay}.yaml").is_file(), overlay


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(f"docs/{name}.md" for name in ("math", "algebra", "cluster", "your-own-data")),
        "results/README.md",
    ],
)
def test_links_lead_somewhere(page):
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (folder / target).exists(), f"{page}: {target}"


def test_the_claims_are_those_of_the_records(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert README.split(BEGIN)[1].split(END)[0] == claims_table(all_claims()) + "\n"
