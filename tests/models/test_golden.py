"""Golden outputs of each model: code that computes something else is another version."""

import pytest

from geomix.settings.trainings import E_BRANCHFORMER, MODEL_VERSIONS
from tests.golden import store
from tests.golden.models import CASES, FILE


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_output_is_that_of_its_version(case):
    assert (sentence := store.fault(case, store.read(FILE).get(case.name), case.compute())) is None, sentence


def test_every_model_of_ours_has_a_case():
    assert {case.of for case in CASES} == set(MODEL_VERSIONS) - {E_BRANCHFORMER}  # that one is ESPnet's own code
