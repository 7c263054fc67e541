"""The chunked form against its definition and against torch's own: value and both gradients, on odd sizes."""

import pytest
import torch
import torch.nn.functional as F

from geomix.kernels.linear_cross_entropy import linear_cross_entropy, naive


def _inputs(tokens, width, vocabulary, dtype, scale=1.0):
    generator = torch.Generator().manual_seed(tokens)
    hidden = (scale * torch.randn(tokens, width, generator=generator, dtype=torch.float64)).to(dtype)
    weight = torch.randn(vocabulary, width, generator=generator, dtype=torch.float64).to(dtype)
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


def _value_and_gradients(function, hidden, weight, targets):
    loss = function(hidden, weight, targets)
    return (loss, *torch.autograd.grad(3.0 * loss, (hidden, weight)))  # an upstream gradient other than one


@pytest.mark.parametrize(
    "tokens, width, vocabulary, chunk", [(1, 1, 2, 1), (37, 5, 101, 8), (37, 5, 101, 37), (64, 16, 333, 100)]
)
@pytest.mark.parametrize(
    "reference", [naive.linear_cross_entropy, lambda h, w, t: F.cross_entropy(h @ w.T, t)], ids=["naive", "torch"]
)
def test_value_and_gradients(tokens, width, vocabulary, chunk, reference):
    inputs = _inputs(tokens, width, vocabulary, torch.float64)
    chunked = _value_and_gradients(lambda *a: linear_cross_entropy(*a, chunk=chunk), *inputs)
    for got, want in zip(chunked, _value_and_gradients(reference, *inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-13)


def test_logits_of_hundreds_neither_overflow_nor_vanish():
    # N(0, 1) embeddings start at a loss of the order of 100: exp() alone would leave fp32
    inputs = _inputs(33, 256, 97, torch.float32, scale=8.0)
    exact = [x.detach().double().requires_grad_() if x.is_floating_point() else x for x in inputs]
    got = _value_and_gradients(linear_cross_entropy, *inputs)
    want = _value_and_gradients(naive.linear_cross_entropy, *exact)
    assert want[0] > 100
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def test_no_gradient_is_made_where_none_is_asked_for():
    hidden, weight, targets = _inputs(16, 8, 32, torch.float64)
    loss = linear_cross_entropy(hidden, weight.detach(), targets, chunk=5)
    (only,) = torch.autograd.grad(loss, (hidden,))
    torch.testing.assert_close(only, _value_and_gradients(naive.linear_cross_entropy, hidden, weight, targets)[1] / 3)
    with torch.no_grad():
        assert not linear_cross_entropy(hidden, weight, targets).requires_grad


def test_autocast_products_in_bf16_sums_in_fp32():
    hidden, weight, targets = _inputs(64, 32, 200, torch.float32, scale=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, targets, chunk=10)
    grads = torch.autograd.grad(loss, (hidden, weight))
    want = _value_and_gradients(naive.linear_cross_entropy, hidden, weight, targets)
    assert loss.dtype == torch.float32 and grads[0].dtype == torch.float32
    torch.testing.assert_close(loss, want[0], rtol=2e-3, atol=0)
    torch.testing.assert_close(grads[1], want[2] / 3, rtol=0.1, atol=2e-4)


@pytest.mark.parametrize("shape", [(4, 3, 2), (0, 2), (4, 3)])
def test_wrong_shapes_are_named(shape):
    with pytest.raises(ValueError, match="linear_cross_entropy: "):
        linear_cross_entropy(torch.zeros(shape), torch.zeros(7, 2), torch.zeros(shape[0], dtype=torch.long))
