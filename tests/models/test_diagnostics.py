"""Diagnostics of pair arms on inputs whose geometry is known."""

import pytest
import torch
from torch import nn

from geomix.mixers import Frames, PairMixer
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.models.diagnostics import mixer_diagnostics, pair_diagnostics


def seeing(z: torch.Tensor, **arguments) -> dict:
    """Diagnostics of a mixer whose reduced frames are the first two columns of its input."""
    mixer = PairMixer(4, rank=2, offsets=(1,), **arguments)
    mixer.reduce.weight.data = torch.eye(2, 4)
    nn.init.zeros_(mixer.reduce.bias)
    if mixer.gate is not None:
        nn.init.zeros_(mixer.gate.weight)
        nn.init.constant_(mixer.gate.bias, 2.0)
    x = torch.cat((z, torch.zeros_like(z)), -1).unsqueeze(0)
    return mixer_diagnostics(mixer, x, Frames.of(torch.tensor([len(z)]), len(z)))


def test_sine_and_gate_of_frames_that_turn_by_30_degrees():
    angle = torch.arange(7) * torch.pi / 6
    found = seeing(3 * torch.stack((angle.cos(), angle.sin()), -1))
    assert found["sine_quantiles"] == pytest.approx(
        dict.fromkeys(("0.05", "0.25", "0.5", "0.75", "0.95"), 0.5), abs=1e-5
    )
    assert found["thin_share"] == 0
    assert found["mean_gate"] == pytest.approx(float(torch.sigmoid(torch.tensor(2.0))), abs=1e-6)


def test_equal_frames_are_thin_for_the_wedge_and_not_for_the_control():
    z = torch.ones(5, 2)
    assert seeing(z)["thin_share"] == 1 and seeing(z)["sine_quantiles"]["0.95"] < 1e-6
    assert seeing(z, kind="symmetric")["thin_share"] == 0


def test_learned_signs_are_told_and_a_mixer_without_a_gate_takes_the_whole_mixture():
    found = seeing(torch.ones(5, 2), signs="learned", signs_start=0.5, gate="none")
    assert found["signs"] == [0.5] and found["mean_gate"] == 0 and found["thin_share"] == 0
    assert "signs" not in seeing(torch.ones(5, 2))


def test_a_lone_frame_has_no_pairs():
    assert seeing(torch.ones(1, 2))["thin_share"] is None


def test_one_entry_a_block_and_none_for_other_arms():
    values = {"vocab": 5, "features": 20, "blocks": 3, "width": 16, "ff_dim": 8, "kernel": 3}
    data = torch.randn(2, 90, 20), torch.tensor([90, 50])
    model = ConformerCTC(ConformerConfig(mixer={"mixer": "pair", "rank": 8}, **values)).train()
    found = pair_diagnostics(model, *data)
    assert [entry["block"] for entry in found] == [0, 1, 2] and model.training
    assert all(0 < entry["mean_gate"] < 1 and 0 <= entry["thin_share"] <= 1 for entry in found)
    assert not any(block.mixer._forward_hooks for block in model.blocks)
    assert pair_diagnostics(ConformerCTC(ConformerConfig(mixer={"mixer": "none"}, **values)), *data) == []
