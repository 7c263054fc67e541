"""Blocked attention as a mixer of our Conformer."""

import pytest
import torch

from geomix.errors import UserError
from geomix.mixers import Frames, make_mixer
from geomix.models.conformer import ConformerConfig, ConformerCTC


def test_parameter_count_in_the_parity_conformer():
    """15 blocks of width 256: per block 4 x 256 x 256 + 256 for the projections, 199 x 64 distances, against attention's 329,216."""
    with torch.device("meta"):
        counts = {
            name: sum(p.numel() for p in ConformerCTC(ConformerConfig(vocab=300, mixer={"mixer": name})).parameters())
            for name in ("attention", "blocked_attention")
        }
        mixer = make_mixer("blocked_attention", 256, heads=4, context=100)
    assert sum(p.numel() for p in mixer.parameters()) == 4 * 256 * 256 + 256 + 199 * 64
    attention = 5 * 256 * 256 + 4 * 256 + 2 * 256  # q, k, v, out, positions; four biases; u and v
    assert counts["blocked_attention"] == counts["attention"] + 15 * (4 * 256 * 256 + 256 + 199 * 64 - attention)
    assert abs(counts["blocked_attention"] / counts["attention"] - 1) < 0.05, "no matched arm"


def test_windows_do_not_see_each_other_and_padding_does_not_matter():
    torch.manual_seed(0)
    mixer = make_mixer("blocked_attention", 12, heads=3, context=5).eval()
    x = torch.randn(2, 13, 12)
    frames = Frames.of(torch.tensor([13, 7]), 13)
    y = mixer(x, frames)
    changed = x.clone()
    changed[:, 5:10] = 3.0
    z = mixer(changed, frames)
    assert (
        torch.equal(y[0, :5], z[0, :5])
        and torch.equal(y[0, 10:], z[0, 10:])
        and not torch.equal(y[0, 5:10], z[0, 5:10])
    )
    padded = x.clone()
    padded[1, 7:] = 100.0
    assert torch.allclose(mixer(padded, frames)[1, :7], y[1, :7], atol=1e-6)
    alone = mixer(x[1:, :7], Frames.of(torch.tensor([7]), 7))
    assert torch.allclose(alone[0], y[1, :7], atol=1e-6)


def test_gradients_reach_every_parameter():
    torch.manual_seed(0)
    mixer = make_mixer("blocked_attention", 8, heads=2, context=4, dropout=0.2).train()
    mixer(torch.randn(2, 9, 8), Frames.of(torch.tensor([9, 3]), 9)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in mixer.parameters())


def test_errors_name_the_setting():
    with pytest.raises(UserError, match="heads 3"):
        make_mixer("blocked_attention", 8, heads=3)
    with pytest.raises(UserError, match="context 0"):
        make_mixer("blocked_attention", 8, context=0)
