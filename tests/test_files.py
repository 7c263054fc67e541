"""Folders of declared files."""

from pathlib import Path

import pytest

from geomix.files import folder_of


def test_declared_files_of_one_folder():
    assert folder_of("a/b/c.json", Path("a/b/d.tsv")) == Path("a/b")
    with pytest.raises(ValueError, match="not the files of one folder"):
        folder_of("a/b/c.json", "a/c.json")
