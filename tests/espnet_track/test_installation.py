"""ESPnet as it was published: every file of its tree has the hash that its wheel recorded."""

import base64
import hashlib
from importlib import metadata
from pathlib import Path

import pytest

from geomix.settings import ESPNET_VERSION

pytestmark = pytest.mark.espnet


def test_the_tree_is_the_wheels():
    distribution = metadata.distribution("espnet")
    assert distribution.version == ESPNET_VERSION
    recorded = {f.locate(): f.hash for f in distribution.files if f.hash}
    assert len(recorded) > 1000
    for path, stated in recorded.items():
        found = (
            base64.urlsafe_b64encode(hashlib.new(stated.mode, Path(path).read_bytes()).digest()).rstrip(b"=").decode()
        )
        assert found == stated.value, path
    # nor has anything been put beside them
    root = Path(distribution.locate_file(""))
    sources = {p for name in ("espnet", "espnet2") for p in (root / name).rglob("*.py")}
    assert {p.resolve() for p in sources} <= {Path(p).resolve() for p in recorded}
