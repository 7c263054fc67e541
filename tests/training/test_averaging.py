"""Averages of checkpoints, and the choice of epochs."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from geomix.errors import UserError
from geomix.training.averaging import average_weights, best_epochs


def save(folder, number, **tensors):
    path = folder / f"epoch-{number}.safetensors"
    save_file(tensors, path)
    return path


def test_mean_is_numpys_and_integers_are_copied(tmp_path):
    random = np.random.default_rng(0)
    arrays = random.normal(size=(10, 7, 3)).astype(np.float32)
    paths = [
        save(tmp_path, n, weight=torch.from_numpy(a.copy()), num_batches_tracked=torch.tensor(100 + n))
        for n, a in enumerate(arrays)
    ]
    mean = average_weights(paths)
    np.testing.assert_array_equal(mean["weight"].numpy(), arrays.astype(np.float64).mean(0).astype(np.float32))
    assert mean["weight"].dtype == torch.float32
    assert mean["num_batches_tracked"] == 109  # the last one's: not 1045, which ESPnet's sum gives


def test_what_cannot_be_averaged_is_refused(tmp_path):
    good = save(tmp_path, 1, weight=torch.ones(2))
    bad = save(tmp_path, 2, weight=torch.tensor([1.0, float("nan")]))
    with pytest.raises(UserError, match=r"epoch-2.*weight holds NaN"):
        average_weights([good, bad])
    with pytest.raises(UserError, match=r"epoch-3.*other tensors"):
        average_weights([good, save(tmp_path, 3, weight=torch.ones(3))])
    with pytest.raises(UserError, match=r"epoch-4.*missing"):
        average_weights([good, tmp_path / "epoch-4.safetensors"])
    good.write_bytes(good.read_bytes()[:20])
    with pytest.raises(UserError, match=r"epoch-1.*damaged"):
        average_weights([good])
    with pytest.raises(UserError, match="no epoch"):
        average_weights([])


def test_best_epochs_are_the_smallest_the_earlier_first_and_nan_last():
    scores = {1: 9.0, 2: 5.0, 3: float("nan"), 4: 5.0, 5: 1.0}
    assert best_epochs(scores, 3) == [5, 2, 4]
    assert best_epochs(scores, 10) == [5, 2, 4, 1, 3]
