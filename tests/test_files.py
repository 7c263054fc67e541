"""Folders: those of declared files, and those that are replaced whole."""

import os
from pathlib import Path

import pytest

from geomix.files import folder_of, replacing_folder


def test_declared_files_of_one_folder():
    assert folder_of("a/b/c.json", Path("a/b/d.tsv")) == Path("a/b")
    with pytest.raises(ValueError, match="not the files of one folder"):
        folder_of("a/b/c.json", "a/c.json")


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    out = tmp_path / "page"
    for text in ("first", "second"):
        with replacing_folder(out) as building:
            (building / "index.html").write_text(text)
    with pytest.raises(ValueError), replacing_folder(out) as building:
        (building / "index.html").write_text("third")
        raise ValueError
    rename = os.rename

    def fails_for_the_new_one(source, target):
        if Path(source).name == "new":
            raise OSError("no space")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails_for_the_new_one)
    with pytest.raises(OSError, match="no space"), replacing_folder(out) as building:
        (building / "index.html").write_text("fourth")
    assert (out / "index.html").read_text() == "second" and os.listdir(tmp_path) == ["page"]
