"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data sets: $GEOMIX_DATA, or ../shared/data from the project's root."""
    folder = Path(os.environ.get("GEOMIX_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set GEOMIX_DATA to the folder that holds them")
    return folder
