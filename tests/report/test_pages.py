"""Pages from templates: prose of a study's own, values that are lacking."""

from pathlib import Path

import pytest
from jinja2 import DictLoader, UndefinedError

from geomix.report import build_report, pages

PUBLISHED = Path("results/published")


def test_a_page_of_its_own_fills_the_blocks_of_the_ordinary_one(tmp_path, monkeypatch):
    monkeypatch.setattr("geomix.report.build.draw_figures", lambda report, folder: [])
    report = build_report(PUBLISHED / "wikitext2/language", tmp_path)
    own = '{% extends "language.md" %}{% block title %}# Phase 2{% endblock %}{% block after %}Expected: ties.{% endblock %}'
    loader = pages._environment().loader
    monkeypatch.setattr(
        pages._environment(),
        "loader",
        DictLoader({"own.md": own, "language.md": loader.get_source(None, "language.md")[0]}),
    )
    ordinary, page = (tmp_path / "tables.md").read_text(), report.page([], "own.md")
    assert page.startswith("# Phase 2\n\n") and page.endswith("\n\nExpected: ties.\n")
    assert page.splitlines()[1:-2] == ordinary.splitlines()[1:]


def test_a_value_that_a_template_lacks_is_an_error(tmp_path):
    with pytest.raises(UndefinedError):
        pages.render("references.md")
