"""Granite Speech against transformers 4.57.1's tensors and against the definition written a second time."""

import pytest

from tests.models.granite.checks import CHECKS, Golden


@pytest.fixture(scope="module")
def golden(data_dir) -> Golden:
    return Golden(data_dir / "granite_golden")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_granite(check, golden):
    check(golden)
