"""The code of docs/algebra.md runs, and its claims that a program can check hold."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "algebra.md"


def test_code_on_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 3
    names: dict = {}
    for block in blocks:  # blocks build on one another, as a reader runs them
        exec(compile(block, str(PAGE), "exec"), names)


def test_figure_and_files_named_on_the_page_exist():
    text = PAGE.read_text()
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (PAGE.parent / link).exists(), link
    for path in re.findall(r"`((?:kernels|models|tests)/[\w/]+(?:\.py)?)`", text):
        base = PAGE.parents[1] if path.startswith("tests") else PAGE.parents[1] / "src" / "geomix"
        assert (base / path).exists(), path
