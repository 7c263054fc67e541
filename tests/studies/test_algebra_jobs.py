"""What a job measures of a training step."""

import torch

from geomix.studies.algebra.jobs import kept_bytes


def test_kept_bytes_counts_activations_alone():
    x, weight = torch.randn(100, 8), torch.randn(8, 4, requires_grad=True)
    # exp keeps its own output (100 x 4 floats); the product keeps x and the weight, which are given
    assert kept_bytes(lambda: (x @ weight).exp().sum(), (x, weight)) == 100 * 4 * 4
