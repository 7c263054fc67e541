"""Relative attention: the shift against a loop, the cached form against the definition."""

import pytest
import torch

from geomix.kernels.relative_attention import attend, blocked, blocked_attend, rel_shift, relative_attend


@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_rel_shift_is_the_loop(length):
    """espnet#2816: the wrong triangle was found only after a release."""
    scores = torch.randn(2, 3, length, 2 * length - 1)
    shifted = rel_shift(scores)
    for i in range(length):
        for j in range(length):
            # column c holds the distance T - 1 - c, query minus key
            assert torch.equal(shifted[..., i, j], scores[..., i, length - 1 - (i - j)])


@pytest.mark.parametrize("at_once", [1, 2**20], ids=["one-utterance", "all"])
@pytest.mark.parametrize(("batch", "frames", "heads", "d"), [(3, 1, 2, 4), (3, 7, 2, 5), (5, 33, 1, 3), (2, 129, 4, 8)])
def test_blocked_form_equals_the_definition(batch, frames, heads, d, at_once, monkeypatch):
    monkeypatch.setattr(blocked, "SCORES", at_once)
    shapes = [(batch, frames, heads, d)] * 3 + [(2 * frames - 1, heads, d), (heads, d), (heads, d)]
    arguments = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    lengths = torch.randint(1, frames + 1, (batch,))
    grad = torch.randn(batch, frames, heads, d, dtype=torch.float64)
    results = []
    for form in (attend, blocked_attend):
        y = form(*arguments, lengths)
        results.append((y, *torch.autograd.grad(y, arguments, grad)))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_dropout_of_the_weights_has_the_right_mean_and_matching_gradient():
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 40, 1, 4, dtype=torch.float64)
    v = torch.ones(1, 40, 1, 4, dtype=torch.float64, requires_grad=True)
    p, u = torch.randn(79, 1, 4, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.float64)
    y = blocked_attend(q, k, v, p, u, u, torch.tensor([40]), dropout=0.25)
    assert y.std() > 0.01 and abs(y.mean() - 1) < 0.1
    (grad,) = torch.autograd.grad(y.sum(), v)
    # linear in v: the gradient's sum is the output's, only if both used the same mask
    torch.testing.assert_close(grad.sum(), y.sum())


def test_fake_tensors_give_shapes():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 5, 2, 4)
        p, u = torch.empty(9, 2, 4), torch.empty(2, 4)
        assert relative_attend(q, q, q, p, u, u, torch.tensor([5, 3])).shape == q.shape
