"""Pages of phases 2 and 3: a contrast says the same from both sides."""

import pytest

from geomix.report.algebra.models import Contrast

RATIO = {"a": "clifford", "b": "dense", "ratio": 0.8, "low": 0.5, "high": 0.9, "verdict": "clifford better"}
POINTS = {"a": "clifford", "b": "dense", "difference": 1.5, "low": -0.5, "high": 3.0, "verdict": "tie"}


@pytest.mark.parametrize(
    "entry, turned, text, verdict",
    [
        (RATIO, False, "0.800 [0.500, 0.900]", "better"),
        (RATIO, True, "1.250 [1.111, 2.000]", "worse"),
        (POINTS, False, "+1.5 [-0.5, +3.0] points", "tie"),
        (POINTS, True, "-1.5 [-3.0, +0.5] points", "tie"),
        ({**POINTS, "verdict": "b better"}, True, "-1.5 [-3.0, +0.5] points", "better"),  # of word error rates: a or b
        ({"a": "clifford", "b": "dense", "ratio": 0.5, "verdict": "no interval"}, True, "2.000", "no interval"),
    ],
)
def test_a_contrast_from_both_sides(entry, turned, text, verdict):
    found = Contrast(entry, turned)
    assert (found.text, found.verdict) == (text, verdict)
