"""The arms in ESPnet's own build: published sizes, and the same network in both code bases."""

import copy

import numpy as np
import pytest
import torch

from geomix.espnet_track import agreement, encoder
from geomix.models.ctc import ctc_loss
from geomix.settings import load, training_settings
from tests.conftest import ROOT

pytestmark = pytest.mark.espnet

TOKENS = ["<blank>", "<unk>", *(f"t{i}" for i in range(4997)), "<sos/eos>"]
COUNTS = {
    "attention": 26_958_472,
    "grassmann": 26_021_992,
    "symmetric": 26_021_992,
    "no_mixer": 26_945_032,
    "e_branchformer": 26_433_928,
}


@pytest.fixture(scope="module", autouse=True)
def registered():
    encoder.register()


@pytest.fixture(scope="module")
def full():
    config = load(base=ROOT / "config.yaml")
    config["arms"].setdefault("e_branchformer", {"architecture": "e_branchformer"})
    return config


@pytest.mark.parametrize("arm", COUNTS)
def test_sizes_through_espnets_own_build(full, arm):
    model = agreement.build_espnet(training_settings(full, arm, 0, "espnet"), TOKENS)
    assert sum(p.numel() for p in model.parameters()) == COUNTS[arm]


def small(full, arm, **changes):
    config = copy.deepcopy(full)
    config["model"].update({"blocks": 3, "width": 32, "ff_dim": 48, "kernel": 7, **agreement.NO_DROPOUT, **changes})
    config["arms"]["attention"]["heads"] = 2
    for name in ("grassmann", "symmetric", "grassmann_one_offset"):
        config["arms"][name]["rank"] = 8
    config["arms"]["no_mixer"]["ff_dim"] = 64
    return training_settings(config, arm, 0, "espnet")


@pytest.fixture(scope="module")
def stats_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("stats") / "feats_stats.npz"
    draw = np.random.default_rng(0)
    mean, count = draw.normal(-5, 1, 80).astype(np.float32), 100
    np.savez(path, count=count, sum=count * mean, sum_square=count * (mean**2 + 4))
    return path


@pytest.mark.parametrize(
    ("arm", "changes"),
    [
        ("attention", {}),
        ("grassmann", {}),
        ("symmetric", {}),
        ("no_mixer", {}),
        ("grassmann_one_offset", {"subsampling": 8}),
        ("grassmann", {"intermediate_ctc": {"blocks": [1], "weight": 0.3, "self_conditioning": True}}),
    ],
)
def test_copied_weights_give_the_same_log_probabilities_and_loss(full, stats_file, arm, changes):
    ours, theirs = agreement.pair_of_models(small(full, arm, **changes), TOKENS[:40] + TOKENS[-1:], stats_file)
    for norm in (m for m in ours.modules() if isinstance(m, torch.nn.BatchNorm1d)):  # as if trained
        norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2)
    theirs.load_state_dict(agreement.to_espnet(ours.state_dict(), attention=arm == "attention"), strict=False)
    torch.manual_seed(1)
    lengths = torch.tensor([160, 123, 61])
    batch = torch.randn(3, 160, 80) * 2 - 5
    for dtype in (torch.float64, torch.float32):
        found = agreement.log_prob_difference(ours.to(dtype), theirs.to(dtype), batch.to(dtype), lengths)
        assert found < 1e-5, dtype
    tokens = torch.randint(1, 40, (3, 5))
    token_lengths = torch.tensor([5, 4, 3])
    logits, _, frames = ours.float().train().encode(batch, lengths)
    expected = ctc_loss(logits.log_softmax(-1), frames.lengths, tokens, token_lengths)
    encoded, encoded_lengths = agreement.encode(theirs.float().train(), batch, lengths)
    loss = theirs.ctc(encoded, encoded_lengths, tokens, token_lengths)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_difference_is_found(full, stats_file):
    """The comparison can fail: one weight of one mixer moved by a thousandth."""
    ours, theirs = agreement.pair_of_models(small(full, "grassmann"), TOKENS[:40], stats_file)
    with torch.no_grad():
        ours.blocks[1].mixer.reduce.weight[0, 0] += 1e-3
    batch, lengths = torch.randn(2, 120, 80), torch.tensor([120, 90])
    assert agreement.log_prob_difference(ours.double(), theirs.double(), batch.double(), lengths) > 1e-5
