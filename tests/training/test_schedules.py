"""Learning rates against ESPnet's published values and torch's own cosine."""

import pytest
import torch

from geomix.training.schedules import cosine_rate, warmup_rate


def test_warmup_is_espnets_recipe():
    # peak 2e-3 at update 15,000, linear before it, inverse square root after it
    assert warmup_rate(1, 2e-3, 15000) == pytest.approx(2e-3 / 15000)
    assert warmup_rate(7500, 2e-3, 15000) == pytest.approx(1e-3)
    assert warmup_rate(15000, 2e-3, 15000) == pytest.approx(2e-3)
    assert warmup_rate(60000, 2e-3, 15000) == pytest.approx(1e-3)
    rates = [warmup_rate(k, 2e-3, 40) for k in range(1, 200)]
    assert max(rates) == rates[39]


def test_cosine_is_torchs_stepped_once_an_epoch():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
    for epoch in range(1, 31):
        assert cosine_rate(epoch, 1e-3, 30) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-15)
        optimizer.step()
        schedule.step()
