"""Dropout: rate, scale, reproducibility, and one mask for both directions."""

import pytest
import torch

from geomix.kernels.dropout import dropout


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_rate_scale_and_gradient(p):
    torch.manual_seed(0)
    x = torch.ones(999, 1003, requires_grad=True)
    y = dropout(x, p)
    dropped = (y == 0).float().mean()
    assert abs(dropped - p) < 5 * (p * (1 - p) / x.numel()) ** 0.5 + 1e-5
    assert torch.allclose(y[y != 0], torch.tensor(1 / (1 - p)), rtol=1e-4)
    columns = (y == 0).float().mean(0)  # no column is favoured
    assert (columns - p).abs().max() < 6 * (p * (1 - p) / 999) ** 0.5
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach())


def test_the_same_state_gives_the_same_mask_and_the_state_moves_on():
    x = torch.ones(7, 13)
    torch.manual_seed(3)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5), first) and not torch.equal(first, second)


def test_identity_in_eval_mode_and_at_zero():
    x = torch.randn(3, 5)
    assert dropout(x, 0.5, training=False) is x and dropout(x, 0.0) is x


def test_dtypes_are_kept():
    for dtype in (torch.float64, torch.bfloat16):
        assert dropout(torch.ones(5, dtype=dtype), 0.1).dtype == dtype


def test_one_drops_everything_and_no_other_number_is_a_probability():
    assert not dropout(torch.ones(3, 5), 1.0).any()
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="from 0 to 1"):
            dropout(torch.ones(3), p)


def test_draws_lie_where_the_input_does_whatever_the_default_device_is():
    with torch.device("meta"):
        assert dropout(torch.ones(5, 7, device="cpu"), 0.5).device.type == "cpu"
    assert dropout(torch.ones(5, 7, device="meta"), 0.5).shape == (5, 7)
