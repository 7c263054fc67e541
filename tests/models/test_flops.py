"""FLOPs by formula: the published figures, and torch's own counter on a model that is run."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from geomix.kernels.relative_attention import attend
from geomix.mixers.attention import module as relative_attention
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.models.flops import macs_per_frame, train_flops_per_audio_second


@pytest.mark.parametrize(
    ("mixer", "ff_dim", "gflop"),
    [({"mixer": "attention"}, 1024, 6.23), ({"mixer": "pair"}, 1024, 5.51), ({"mixer": "none"}, 1344, 5.64)],
)
def test_gflop_per_audio_second_of_the_full_study(mixer, ff_dim, gflop):
    config = ConformerConfig(vocab=5000, mixer=mixer, ff_dim=ff_dim)
    assert train_flops_per_audio_second(config) / 1e9 == pytest.approx(gflop, abs=0.005)


@pytest.mark.parametrize("subsampling", [4, 8])
@pytest.mark.parametrize(
    "mixer", [{"mixer": "attention"}, {"mixer": "pair"}, {"mixer": "pair", "form": "paper"}, {"mixer": "none"}]
)
def test_formula_is_what_torch_counts(mixer, subsampling, monkeypatch):
    # the counter does not know the in-place product of the cached form: count the definition's
    monkeypatch.setattr(relative_attention, "relative_attend", attend)
    config = ConformerConfig(vocab=50, blocks=2, width=32, ff_dim=48, kernel=5, subsampling=subsampling, mixer=mixer)
    model = ConformerCTC(config).eval()
    frames = 400  # long enough for the convolutions' margins, which the formula leaves out, to be small
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        _, lengths = model.log_probs(torch.randn(1, frames, 80), torch.tensor([frames]))
    n = int(lengths[0])
    positions = (2 * n - 1) * 32 * 32 * 2 if mixer["mixer"] == "attention" else 0  # linear_pos: left out of the formula
    assert (counter.get_total_flops() - 2 * positions) / 2 / n == pytest.approx(macs_per_frame(config, n), rel=0.02)
