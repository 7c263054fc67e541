"""The reference forms of a Clifford product beside the definition; the atomic kernel's are in kernels/interpreted_product.py."""

import numpy as np
import pytest
import torch

from geomix.algebra import Algebra
from geomix.benchmarks import reference_forms
from geomix.kernels.product import naive
from tests.kernels.test_product import ALGEBRAS, operands


@pytest.mark.parametrize("n,k,missing", [(3, 3, 0), (4, 3, 14), (4, 4, 0), (5, 3, 120)])
def test_why_the_articles_opt_column_is_wrong(n, k, missing):
    """A dense L x L gather needs the partner k XOR j of every place; truncation removes some. Falling back to index 0 with a
    sign gives errors of the article's size (3 to 12) there, and sign 0 in the same places gives none."""
    algebra = Algebra.truncated(n, k)
    a, b, _ = operands(algebra, 128)
    truth = naive.bilinear(algebra.product(), a.double(), b.double()).t()
    wrong = (reference_forms.opt(algebra, a.t(), b.t()) - truth).abs()
    right = (reference_forms.sign_matrix(algebra.product(), a.t(), b.t()) - truth).abs()
    assert reference_forms.missing_partners(algebra) == missing
    assert right.max() < 1e-5
    if not missing:
        assert wrong.max() < 1e-5
    else:
        assert 1 < wrong.max() < 40
        # the whole error is the spurious a_0 b_j of the missing places
        index, sign = reference_forms._opt_matrix(algebra, torch.float64, torch.device("cpu"))
        absent = ~np.isin(algebra.blades[:, None] ^ algebra.blades[None, :], algebra.blades)
        spurious = (a[0].double() * ((sign * torch.as_tensor(absent)) @ b.double())).t()
        torch.testing.assert_close(reference_forms.opt(algebra, a.t().double(), b.t().double()) - spurious, truth)


@pytest.mark.parametrize("form", ["gather_scatter", "index_add", "einsum", "outer_matmul", "sign_matrix"])
def test_the_other_forms_are_the_definition(form):
    for algebra in ALGEBRAS:
        a, b, _ = operands(algebra, 20, torch.float64)
        truth = naive.bilinear(algebra.product(), a, b).t()
        torch.testing.assert_close(getattr(reference_forms, form)(algebra.product(), a.t(), b.t()), truth)
