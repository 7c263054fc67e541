"""docs/mixers.md: every mixer has its row, and its numbers are those that the arguments give."""

import re

import pytest

from geomix.mixers.pair.arguments import Pair
from geomix.mixers.registry import MIXERS, arguments_of
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "mixers.md").read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("` "): cells
    for line in PAGE.splitlines()
    if line.startswith("| `") and len(cells := [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]) == 9
}


def test_every_mixer_has_a_row():
    assert set(ROWS) == set(MIXERS)


@pytest.mark.parametrize("name", MIXERS)
def test_its_numbers_are_the_arguments(name):
    _, _, parameters, macs, grows, reach, seconds, causal, _ = ROWS[name]
    arguments = arguments_of({"mixer": name})
    assert parameters == f"{arguments.parameters(256):,}" and macs == f"{arguments.macs_per_frame(256, 317):,.0f}"
    growth = arguments.macs_per_frame(256, 5072) / max(arguments.macs_per_frame(256, 317), 1)
    assert (growth > 1.2) == (grows != "no")
    assert (causal == "yes") == (MIXERS[name].causal is not None)
    assert seconds == reach == "all" or float(seconds) == pytest.approx(0.04 * int(reach))


def test_every_key_that_came_later_is_told():
    later = {name for name, field in Pair.model_fields.items() if "before" in (field.json_schema_extra or {})}
    assert later - {"signs_start"} <= set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    assert "`signs_start`" in PAGE
