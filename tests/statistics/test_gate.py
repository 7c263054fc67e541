"""The gate's verdict: bounds, and what a target may be called."""

import pytest

from geomix.statistics import gate_verdict, range_verdict


@pytest.mark.parametrize("wer, passed", [(10.1, True), (10.11, False), (2.0, True)])
def test_a_wer_at_the_bound_has_reached_it(wer, passed):
    assert gate_verdict({"test": wer}, {"test": 9.8}, {"test": 0.3}, arm="attention").passed == passed


def test_every_target_must_be_published_to_be_parity():
    numbers = {"a": 9.0, "b": 22.0}, {"a": 9.8, "b": 23.3}, {"a": 0.3, "b": 0.5}
    said = [
        gate_verdict(*numbers, arm="x", sources=sources).sentence.split(":")[0]
        for sources in (None, {}, {"a": "S"}, {"a": "S", "b": None}, {"a": "S", "b": ""}, {"a": "S", "b": "T"})
    ]
    assert said == ["target of our own reached"] * 5 + ["parity reached"]
    assert range_verdict(5.0, 4.0, 4.5, arm="x", corpus="c").sentence.endswith(
        "target of our own not reached, above it"
    )
    assert range_verdict(5.0, 5.0, None, arm="x", corpus="c", source="S").sentence.endswith(
        "at least 5: parity reached"
    )
