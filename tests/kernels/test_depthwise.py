"""Depthwise convolution over time against torch's Conv1d: value and every gradient, odd sizes."""

import pytest
import torch
from torch.nn import functional as F

from geomix.kernels.depthwise import CHUNK, depthwise_conv


@pytest.mark.parametrize(
    ("batch", "frames", "channels", "kernel"),
    [(2, 37, 5, 7), (1, 1, 3, 31), (3, CHUNK, 4, 15), (2, 3 * CHUNK + 1, 6, 31), (1, 9, 2, 1)],
)
def test_value_and_gradients_are_conv1ds(batch, frames, channels, kernel):
    draw = torch.Generator().manual_seed(frames)
    of = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.float64, requires_grad=True)
    x, weight, bias = of(batch, frames, channels), of(channels, 1, kernel), of(channels)
    expected = F.conv1d(x.transpose(1, 2), weight, bias, padding=kernel // 2, groups=channels).transpose(1, 2)
    found = depthwise_conv(x, weight, bias)
    assert torch.allclose(found, expected, atol=1e-12)
    grad = torch.randn(expected.shape, generator=draw, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad(found, (x, weight, bias), grad),
        torch.autograd.grad(expected, (x, weight, bias), grad),
        strict=True,
    ):
        assert a.shape == b.shape and torch.allclose(a, b, atol=1e-12)


def test_gradient_without_one_of_the_input():
    """The first layer of a model, or a frozen one below it."""
    x, weight = torch.randn(2, 11, 3), torch.randn(3, 1, 5, requires_grad=True)
    (found,) = torch.autograd.grad(depthwise_conv(x, weight, torch.zeros(3)).sum(), weight)
    expected = F.conv1d(x.transpose(1, 2), weight, padding=2, groups=3).sum()
    assert torch.allclose(found, torch.autograd.grad(expected, weight)[0], atol=1e-5)
