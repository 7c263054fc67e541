"""Fixtures shared by all tests."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def state_of_torch():
    """A test that sets torch's threads or flushes denormals leaves neither to the next one, whose last bits may hang on them."""
    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)
        if threads is not None and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data sets: $GEOMIX_DATA, or ../shared/data from the project's root."""
    folder = Path(os.environ.get("GEOMIX_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set GEOMIX_DATA to the folder that holds them")
    return folder
