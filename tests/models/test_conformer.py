"""Conformer-CTC: exact counts, padding, lengths, losses, saving."""

import itertools
import math

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import nn

from geomix.errors import UserError
from geomix.models.config.conformer import IntermediateCTC
from geomix.models.conformer import ConformerConfig, ConformerCTC
from geomix.models.ctc import ctc_loss
from geomix.models.flops import parameter_count
from geomix.models.saved import load_model, save_model
from geomix.models.subsampling import Conv2dSubsampling, subsampled_length

ARMS = {
    "attention": {"mixer": "attention"},
    "grassmann": {"mixer": "pair"},
    "symmetric": {"mixer": "pair", "kind": "symmetric"},
    "signed": {"mixer": "pair", "kind": "signed"},
    "geometric": {"mixer": "pair", "kind": "geometric"},
    "grassmann_causal": {"mixer": "pair", "two_sided": False},
    "grassmann_one_offset": {"mixer": "pair", "one_offset_per_block": True},
    "no_mixer": {"mixer": "none"},
}


def small(arm: str = "attention", **changes) -> ConformerCTC:
    torch.manual_seed(0)
    values = {
        "vocab": 11,
        "features": 20,
        "blocks": 2,
        "width": 16,
        "ff_dim": 24,
        "kernel": 5,
        "mixer": ARMS[arm],
        **changes,
    }
    model = ConformerCTC(ConformerConfig(**values))
    model.set_normalisation(torch.full((values["features"],), -4.0), torch.full((values["features"],), 3.0))
    return model


def batch(*lengths: int, features: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(len(lengths), max(lengths), features, generator=g) * 3 - 4, torch.tensor(lengths)


# -- counts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arm", "ff_dim", "parameters"),
    [
        ("attention", 1024, 26_958_472),
        ("grassmann", 1024, 26_021_992),
        ("symmetric", 1024, 26_021_992),
        ("signed", 1024, 26_021_992),
        ("geometric", 1024, 26_025_832),
        ("grassmann_causal", 1024, 26_021_992),
        ("grassmann_one_offset", 1024, 26_021_992),
        ("no_mixer", 1344, 26_945_032),
    ],
)
def test_exact_counts_of_the_full_study(arm, ff_dim, parameters):
    assert parameter_count(ConformerConfig(vocab=5000, mixer=ARMS[arm], ff_dim=ff_dim)) == parameters


@pytest.mark.parametrize(
    ("changes", "difference"),
    [({"kernel": 15}, -61_440), ({"subsampling": 8}, -65_280), ({"blocks": 12}, -4_766_976), ({"vocab": 5001}, 257)],
)
def test_counts_of_espnets_variants(changes, difference):
    config = ConformerConfig.from_dict({"vocab": 5000, **changes})
    assert parameter_count(config) - 26_958_472 == difference


def test_parts_of_a_block_as_espnet_counts_them():
    block = ConformerCTC(ConformerConfig(vocab=5, blocks=1)).blocks[0]
    count = lambda module: sum(p.numel() for p in module.parameters())
    assert (count(block.mixer), count(block.feed_forward), count(block.conv_module)) == (329_216, 525_568, 206_080)
    assert count(block) == 1_588_992
    assert count(Conv2dSubsampling(80, 256)) == 1_838_080


# -- padding and lengths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subsampling", [4, 8])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["fp32", "fp64"])
@pytest.mark.parametrize("arm", ARMS)
def test_padding_changes_no_real_frame(arm, dtype, tolerance, subsampling):
    model = small(arm, subsampling=subsampling).eval().to(dtype)
    features, lengths = batch(203, 15, 16, 98)
    features = features.to(dtype)
    together, frames = model.log_probs(features, lengths)
    features[1, 15:], features[3, 98:] = torch.nan, 1e6  # whatever the padding holds
    hostile, _ = model.log_probs(features, lengths)
    for row, length in enumerate(lengths):
        alone, n = model.log_probs(features[row : row + 1, :length], lengths[row : row + 1])
        assert n[0] == frames[row] == alone.shape[1]
        for y in (together, hostile):
            assert (y[row, : n[0]] - alone[0]).abs().max() < tolerance


def test_length_does_not_depend_on_batch_mates():
    """espnet#3037, #6600: 288 frames gave 71 alone and 72 beside 363."""
    model = small().eval()
    assert model.log_probs(*batch(288))[1].tolist() == [71]
    assert model.log_probs(*batch(288, 363))[1].tolist() == [71, 90]


@pytest.mark.parametrize("subsampling", [4, 8])
def test_lengths_are_those_of_the_convolutions(subsampling):
    front = Conv2dSubsampling(20, 3, subsampling)
    for frames in (15, 16, 17, 30, 31, 32, 63, 288):
        assert front(torch.zeros(1, frames, 20)).shape[1] == subsampled_length(frames, subsampling)
    lengths = torch.arange(1, 400)
    assert subsampled_length(lengths, subsampling).tolist() == [subsampled_length(int(n), subsampling) for n in lengths]
    assert subsampled_length(torch.tensor([0, 1, 2]), subsampling).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("subsampling", "least"), [(4, 7), (8, 15)])
def test_too_short_an_utterance_ends_in_a_sentence(subsampling, least):
    model = small(subsampling=subsampling)
    tokens, token_lengths = torch.ones(2, 1, dtype=torch.int64), torch.tensor([1, 1])
    assert model(*batch(40, least), tokens, token_lengths)["loss"].isfinite()
    with pytest.raises(UserError, match=f"{least - 1} frames is too short"):
        model(*batch(40, least - 1), tokens, token_lengths)


@pytest.mark.parametrize(("channels", "frames", "bins", "subsampling"), [(8, 41, 20, 4), (5, 63, 23, 8), (3, 7, 80, 4)])
def test_front_end_and_its_gradients_are_those_of_plain_convolutions(channels, frames, bins, subsampling):
    front = Conv2dSubsampling(bins, channels, subsampling).double()
    x = torch.randn(3, frames, bins, dtype=torch.float64, requires_grad=True)
    y = front(x)
    h = x.unsqueeze(1)
    for conv in front.conv:
        h = torch.relu(conv(h))
    expected = front.out(h.transpose(1, 2).flatten(2))
    torch.testing.assert_close(y, expected)
    grad = torch.randn_like(y)
    both = [torch.autograd.grad(out, [x, *front.parameters()], grad) for out in (y, expected)]
    for found, plain in zip(*both, strict=True):
        torch.testing.assert_close(found, plain)


# -- batch norm ---------------------------------------------------------------------------------------------------------------


def running_statistics(batch_norm: str, padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    model = small("grassmann", batch_norm=batch_norm, dropout=0.0, positional_dropout=0.0).train()
    features, lengths = batch(120, 60)
    features = torch.cat((features, torch.zeros(2, padding, 20)), 1)
    model(features, lengths, torch.ones(2, 1, dtype=torch.int64), torch.tensor([1, 1]))
    norm = model.blocks[-1].conv_module.norm
    return norm.running_mean, norm.running_var


def test_masked_batch_norm_does_not_see_padding():
    """pytorch#25910, axlearn#646."""
    for none, much in zip(running_statistics("masked", 0), running_statistics("masked", 200), strict=True):
        assert (none - much).abs().max() < 1e-6


def test_espnets_batch_norm_sees_padding_as_the_recipe_does():
    """The parity recipe's choice, stated: one step moves the running mean by at most the momentum times the mean's change."""
    none, much = (running_statistics("espnet", n)[0] for n in (0, 200))
    assert 1e-4 < (none - much).abs().max() < 0.1


# -- loss ---------------------------------------------------------------------------------------------------------------------


def brute_force(log_probs: torch.Tensor, target: list[int]) -> float:
    """-log of the sum over all paths that collapse to the target."""
    total = 0.0
    for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs)):
        collapsed = [u for n, u in enumerate(path) if u != 0 and (n == 0 or path[n - 1] != u)]
        if collapsed == target:
            total += math.exp(sum(float(log_probs[t, u]) for t, u in enumerate(path)))
    return -math.log(total)


def test_loss_is_the_sum_over_alignments_divided_by_the_batch_size():
    log_probs = torch.randn(3, 5, 4).log_softmax(-1)
    lengths, targets = [5, 3, 4], [[1, 1, 2], [3], []]
    expected = sum(brute_force(log_probs[b, : lengths[b]], targets[b]) for b in range(3)) / 3
    tokens = torch.tensor([[1, 1, 2], [3, 0, 0], [0, 0, 0]])
    loss = ctc_loss(log_probs, torch.tensor(lengths), tokens, torch.tensor([3, 1, 0]))
    assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("padded_to", [0, 2])
def test_an_empty_target_costs_the_blank_path(padded_to):
    """pytorch#21680, #49046: NaN for an empty target."""
    log_probs = torch.randn(1, 6, 4).log_softmax(-1).requires_grad_()
    loss = ctc_loss(log_probs, torch.tensor([5]), torch.zeros(1, padded_to, dtype=torch.int64), torch.tensor([0]))
    assert float(loss) == pytest.approx(-float(log_probs[0, :5, 0].detach().sum()), rel=1e-5)
    assert torch.autograd.grad(loss, log_probs)[0].isfinite().all()


def test_what_cannot_be_aligned_counts_as_zero_with_zero_gradient():
    """icefall#135, espnet#2669: five frames cannot hold [1, 1, 2, 2]."""
    log_probs = torch.randn(2, 5, 4).log_softmax(-1).requires_grad_()
    tokens, lengths = torch.tensor([[1, 1, 2, 2], [1, 0, 0, 0]]), torch.tensor([5, 5])
    loss = ctc_loss(log_probs, lengths, tokens, torch.tensor([4, 1]))
    only = ctc_loss(log_probs[1:], lengths[1:], tokens[1:], torch.tensor([1])) / 2
    assert float(loss.detach()) == pytest.approx(float(only.detach()), rel=1e-6)
    gradient = torch.autograd.grad(loss, log_probs)[0]
    assert gradient.isfinite().all() and (gradient[0] == 0).all()


@pytest.mark.parametrize("token", [0, 4, -1])
def test_the_blank_is_0_and_never_a_target(token):
    """espnet#1508, CAT#22: blank, eos and unk mixed up."""
    log_probs = torch.randn(1, 5, 4).log_softmax(-1)
    with pytest.raises(ValueError, match="blank"):
        ctc_loss(log_probs, torch.tensor([5]), torch.tensor([[1, token]]), torch.tensor([2]))


def test_loss_is_taken_in_fp32_under_autocast():
    model = small("grassmann").eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log_probs, _ = model.log_probs(*batch(60, 40))
    assert log_probs.dtype == torch.float32
    assert (log_probs.exp().sum(-1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("arm", ARMS)
def test_every_parameter_that_the_arm_uses_gets_a_gradient(arm):
    model = small(arm).train()
    model(*batch(90, 50), torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1]))["loss"].backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    # the empty slot keeps its LayerNorm, for the count, and does not use it
    expected = (
        {f"blocks.{b}.norm_mha.{p}" for b in range(2) for p in ("weight", "bias")} if arm == "no_mixer" else set()
    )
    assert without == expected
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_the_same_seed_gives_the_same_gradients():
    """espnet#6433: same seed, different result. On a CPU it is bit-exact."""
    gradients = []
    for _ in range(2):
        model = small("grassmann").train()
        model(*batch(90, 50), torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1]))["loss"].backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


# -- intermediate CTC ---------------------------------------------------------------------------------------------------------


def test_intermediate_loss_is_weighed_in():
    inter = IntermediateCTC(blocks=(1,), weight=0.3, self_conditioning=False)
    model, plain = small(blocks=3, intermediate_ctc=inter).eval(), small(blocks=3).eval()
    plain.load_state_dict(model.state_dict())
    one = small(blocks=1).eval()
    one.load_state_dict(model.state_dict(), strict=False)
    data = (*batch(80, 50), torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1]))
    losses = model(*data)
    assert not losses["loss_final"].requires_grad
    final, inner = plain(*data)["loss"].detach(), one(*data)["loss"].detach()
    torch.testing.assert_close(losses["loss"].detach(), 0.7 * final + 0.3 * inner)
    torch.testing.assert_close(losses["loss_final"], final)


def test_self_conditioning_feeds_the_posteriors_back():
    model = small(blocks=3, intermediate_ctc=IntermediateCTC((1, 2), 0.5, True)).eval()
    features, lengths = batch(80, 50)
    before, _ = model.log_probs(features, lengths)
    nn.init.zeros_(model.conditioning.weight)
    nn.init.zeros_(model.conditioning.bias)
    plain = small(blocks=3).eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    assert not torch.allclose(before, model.log_probs(features, lengths)[0], atol=1e-3)
    torch.testing.assert_close(model.log_probs(features, lengths)[0], plain.log_probs(features, lengths)[0])


# -- configuration and files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"widht": 3}, "widht"),
        ({"kernel": 30}, "kernel"),
        ({"subsampling": 6}, "subsampling"),
        ({"batch_norm": "none"}, "batch_norm"),
        ({"dropout": 1.5}, "dropout"),
        ({"blocks": 0}, "blocks"),
        ({"mixer": {"heads": 4}}, "mixer"),
        ({"intermediate_ctc": {"blocks": [15]}}, "intermediate_ctc.blocks"),
        ({"intermediate_ctc": {"blocks": [3], "wieght": 1}}, "wieght"),
        ({"intermediate_ctc": {"weight": 0.5}}, "intermediate_ctc.blocks"),
    ],
)
def test_mistakes_in_the_configuration_are_named(values, named):
    with pytest.raises(UserError, match=named):
        ConformerConfig.from_dict({"vocab": 100, **values})
    with pytest.raises(UserError, match="vocab"):
        ConformerConfig.from_dict({})


@pytest.mark.parametrize("arm", ["attention", "signed", "no_mixer"])
def test_a_saved_model_is_whole(arm, tmp_path):
    inter = {"blocks": [1], "weight": 0.5, "self_conditioning": True}
    model = small(arm, seed=4, intermediate_ctc=IntermediateCTC(**{**inter, "blocks": (1,)})).eval()
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    assert not loaded.training and loaded.config == model.config and loaded.config.seed == 4
    for one, other in zip(model.log_probs(*batch(70, 40)), loaded.log_probs(*batch(70, 40)), strict=True):
        assert torch.equal(one, other)
    about = yaml.safe_load((tmp_path / "model.yaml").read_text())
    assert about["tokenizer"] == "tokenizer.model" and about["model"]["vocab"] == 11
    assert about["model"]["intermediate_ctc"] == inter


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blocks": 10**9}, "1,000,000,000 blocks"),
        ({"mixer": {"mixer": "attention", "heads": "2"}}, "heads '2'"),
        ({"vocab": 10**12}, "does not fit"),
    ],
)
def test_settings_that_are_not_the_weights_are_told_at_once(tmp_path, change, words):
    save_model(small(), tmp_path)
    about = yaml.safe_load((tmp_path / "model.yaml").read_text())
    about["model"] |= change
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(about))
    with pytest.raises(UserError, match=words):
        load_model(tmp_path)


def test_weights_of_another_precision_are_read_and_others_named(tmp_path):
    model = small()
    save_model(model, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        save_file(
            {k: v.to(dtype) if v.is_floating_point() else v for k, v in weights.items()}, tmp_path / "model.safetensors"
        )
        found = load_model(tmp_path).state_dict()
        assert all(torch.equal(found[k], v.to(dtype).to(v.dtype)) for k, v in model.state_dict().items() if k in found)
    save_file(weights | {"ctc.weight": weights["ctc.weight"].to(torch.complex64)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="ctc.weight in model.safetensors is of torch.complex64"):
        load_model(tmp_path)


def test_a_damaged_model_ends_in_a_sentence(tmp_path):
    with pytest.raises(UserError, match="model.yaml"):
        load_model(tmp_path)
    save_model(small(), tmp_path)
    weights = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(UserError, match="damaged"):
        load_model(tmp_path)
    save_model(small(blocks=1), tmp_path / "other")
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match="does not fit"):
        load_model(tmp_path)
