"""docs/math.md: its examples give what it says, and no section is without one."""

import doctest
import re

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "math.md"


def sections():
    """(title, text) of each section, the introduction first."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [("introduction", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]


@pytest.fixture(scope="module")
def outcome():
    """Failures of the whole page, run in order in one namespace, and the number of examples tried in each section."""
    names, failures, tried = {}, [], {}
    for title, text in sections():
        test = doctest.DocTestParser().get_doctest(text.replace("```", ""), names, title, str(PAGE), 0)
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(test, out=failures.append, clear_globs=False)
        names.update(test.globs)
        tried[title] = runner.summarize(verbose=False).attempted
    return "".join(failures), tried


def test_every_example_gives_what_the_page_says(outcome):
    failures, _ = outcome
    assert not failures, failures


def test_every_section_has_a_worked_example(outcome):
    _, tried = outcome
    assert len(tried) == 13
    assert all(tried.values()), tried


def test_a_wrong_number_would_be_found():
    parser, names = doctest.DocTestParser(), {}
    test = parser.get_doctest(">>> 1 + 1\n3\n", names, "wrong", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda text: None).failed == 1
