"""The language models: exact counts, causality by changed futures, receptive fields, layouts written out by hand."""

import dataclasses
import math

import pytest
import torch
from torch.nn import functional as F

from geomix.errors import UserError
from geomix.mixers import Frames
from geomix.models.transformer_lm import (
    CausalAttention,
    LanguageModelConfig,
    TransformerLM,
    load_language_model,
    parameter_count,
    save_language_model,
    train_flops_per_token,
)

ATTENTION = {"mixer": "attention", "heads": 4}
PAIR = {"mixer": "pair", "kind": "wedge", "rank": 32, "offsets": [1, 2, 4, 8, 12, 16]}
ARMS = {
    "transformer": {"mixer": ATTENTION},
    "grassmann": {"mixer": PAIR},
    "symmetric": {"mixer": {**PAIR, "kind": "symmetric"}},
    "signed": {"mixer": {**PAIR, "kind": "signed"}},
    "one_offset": {"mixer": {**PAIR, "one_offset_per_block": True}},
    "extra_linear": {"mixer": PAIR, "extra_linear": True},
    "pre_norm": {"mixer": PAIR, "norm": "pre", "init_std": 0.02},
    "transformer_pre_norm": {"mixer": ATTENTION, "norm": "pre"},
}


def full_size(**keys):
    return LanguageModelConfig.from_dict({"vocab": 30522, **keys})


def small(arm, **keys):
    """A model of the arm at width 16 in float64, dropout off, of which nothing is trained."""
    values = {"vocab": 50, "width": 16, "ff_dim": 32, "blocks": 6, **ARMS[arm], **keys}
    if values["mixer"]["mixer"] == "pair":
        values["mixer"] = {**values["mixer"], "rank": 6}
    torch.manual_seed(0)
    return TransformerLM(LanguageModelConfig.from_dict(values)).double().eval()


@pytest.mark.parametrize(
    "arm, blocks, positions, parameters",
    [
        # the article's section on e01 and its table of counts; 12 layers: the paper's 18.16M
        ("transformer", 6, 128, 12_585_472),
        ("grassmann", 6, 128, 12_607_168),
        ("symmetric", 6, 128, 12_607_168),
        ("signed", 6, 128, 12_607_168),
        ("one_offset", 6, 128, 12_607_168),
        ("extra_linear", 6, 128, 13_001_920),
        ("pre_norm", 6, 128, 12_607_168),
        ("transformer", 12, 128, 17_324_032),
        ("grassmann", 12, 128, 17_367_424),
        ("extra_linear", 12, 128, 18_156_928),
        ("extra_linear", 12, 256, 18_189_696),
    ],
)
def test_parameter_counts(arm, blocks, positions, parameters):
    assert parameter_count(full_size(blocks=blocks, positions=positions, **ARMS[arm])) == parameters


@pytest.mark.parametrize(
    "arm, parameters", [("transformer", 789_760), ("grassmann", 793_376), ("extra_linear", 859_168)]
)
def test_block_counts(arm, parameters):
    with torch.device("meta"):
        block = TransformerLM(full_size(blocks=1, **ARMS[arm])).blocks[0]
    assert sum(p.numel() for p in block.parameters()) == parameters


@pytest.mark.parametrize("arm", ARMS)
def test_no_output_depends_on_a_later_token(arm):
    model = small(arm)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(50, (2, 40), generator=generator)
    logits = model.logits(tokens)
    for cut in (1, 13, 39):
        changed = tokens.clone()
        changed[:, cut:] = (changed[:, cut:] + 1 + torch.randint(49, (2, 40 - cut), generator=generator)) % 50
        difference = (model.logits(changed) - logits).abs().amax(-1)
        assert difference[:, :cut].max() == 0
        assert difference[:, cut].min() > 0  # the check sees a change where one must be


@pytest.mark.parametrize("arm, reach", [("grassmann", 96), ("symmetric", 96), ("signed", 96), ("one_offset", 43)])
def test_receptive_field(arm, reach):
    """Six layers read exactly `reach` tokens back: the sum over layers of the largest offset (96) or of the offsets (43)."""
    model = small(arm)
    tokens = torch.randint(50, (1, 128), generator=torch.Generator().manual_seed(2))
    embedded = model.tokens(tokens) + model.positions.weight
    embedded = embedded.detach().requires_grad_()
    frames = Frames(torch.tensor([128]), torch.ones(1, 128, dtype=torch.bool))
    x = embedded
    for block in model.blocks:
        x = block(x, frames)
    (gradient,) = torch.autograd.grad(x[0, -1].sum() + x[0, -1].square().sum(), embedded)
    distance = 127 - gradient[0].abs().amax(-1).nonzero().squeeze(-1)
    assert distance.max().item() == reach


def test_attention_is_the_masked_softmax():
    torch.manual_seed(0)
    attention = CausalAttention(12, heads=3).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    q, k, v = attention.qkv(x).chunk(3, dim=-1)
    out = torch.zeros_like(x)
    for head in range(3):
        columns = slice(4 * head, 4 * head + 4)
        for t in range(7):
            scores = torch.einsum("bd,bsd->bs", q[:, t, columns], k[:, : t + 1, columns]) / math.sqrt(4)
            out[:, t, columns] = torch.einsum("bs,bsd->bd", scores.softmax(-1), v[:, : t + 1, columns])
    torch.testing.assert_close(attention(x, None), attention.out(out))


@pytest.mark.parametrize("arm", ["transformer", "grassmann", "pre_norm", "transformer_pre_norm", "extra_linear"])
def test_block_layout(arm):
    """Each layout against its formula, the gate written out."""
    model = small(arm, blocks=1)
    block = model.blocks[0]
    x = torch.randn(2, 9, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    frames = Frames(torch.tensor([9, 9]), torch.ones(2, 9, dtype=torch.bool))

    def branch(u):
        if arm.startswith("transformer"):
            return block.mixer(u, frames)
        g = block.mixer.mixed(u, frames)
        alpha = torch.sigmoid(torch.cat((u, g), dim=-1) @ block.mixer.gate.weight.T + block.mixer.gate.bias)
        return alpha * u + (1 - alpha) * g

    if arm == "transformer":
        y = block.norm_mixer(x + branch(x))
    elif arm == "grassmann":
        y = block.norm_mixer(branch(x))
    elif arm == "extra_linear":
        y = block.norm_mixer(block.extra(branch(x)))
    elif arm == "transformer_pre_norm":
        y = x + branch(block.norm_mixer(x))
    else:
        u = block.norm_mixer(x)
        y = x + branch(u) - u
    want = y + block.ff(block.norm_ff(y)) if arm.endswith("pre_norm") else block.norm_ff(y + block.ff(y))
    torch.testing.assert_close(block(x, frames), want)


def test_loss_is_torchs_cross_entropy_and_starts_of_the_order_of_a_hundred():
    """N(0, 1) embeddings with a tied head start far above ln(vocabulary); N(0, 0.02) at it."""
    tokens = torch.randint(500, (4, 33), generator=torch.Generator().manual_seed(4))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    losses = {}
    for init_std in (None, 0.02):
        torch.manual_seed(0)
        model = TransformerLM(LanguageModelConfig(vocab=500, width=256, ff_dim=64, blocks=2, init_std=init_std)).eval()
        losses[init_std] = model(inputs, targets)["loss"].item()
        reference = F.cross_entropy(model.logits(inputs).flatten(0, 1), targets.flatten()).item()
        assert losses[init_std] == pytest.approx(reference, rel=1e-5)
    assert losses[None] > 50
    assert losses[0.02] == pytest.approx(math.log(500), rel=0.05)


def test_flops_are_those_of_the_probe_table():
    """One block at 16,384 tokens: 80.5, 90.2, 180.4 GFLOP for attention, 77.7 for the anchored mixer, whatever the length."""

    def gflop(arm, length):
        config = full_size(blocks=1, **ARMS[arm])
        empty = dataclasses.replace(config, blocks=0)
        return 16_384e-9 * (train_flops_per_token(config, length) - train_flops_per_token(empty, length))

    assert [round(gflop("transformer", n), 1) for n in (128, 512, 4096)] == [80.5, 90.2, 180.4]
    assert [round(gflop("grassmann", n), 1) for n in (128, 512, 4096)] == [77.7, 77.7, 77.7]


def test_saved_model_is_loaded_without_its_training(tmp_path):
    model = small("one_offset").float()
    save_language_model(model, tmp_path)
    tokens = torch.arange(20)[None]
    torch.testing.assert_close(load_language_model(tmp_path).logits(tokens), model.logits(tokens), rtol=0, atol=0)
    with pytest.raises(UserError, match="no language model here"):
        load_language_model(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"widht": 64}, "'widht': did you mean 'width'"),
        ({"norm": "both"}, "norm 'both' is not known"),
        ({"mixer": {**PAIR, "two_sided": True}}, "read the token it predicts"),
        ({"mixer": {"mixer": "none"}}, "'none' has no causal form"),
        ({"mixer": {"mixer": "attention", "haeds": 4}}, "'haeds' of causal attention"),
        ({"mixer": {"mixer": "attention", "heads": 3}}, "3 attention heads do not divide"),
        ({"mixer": {**PAIR, "kinds": "wedge"}}, "'kinds' of mixer 'pair'"),
    ],
)
def test_wrong_configs_are_refused_by_name(keys, message):
    with pytest.raises(UserError, match=message):
        TransformerLM(LanguageModelConfig.from_dict({"vocab": 50, "width": 16, "blocks": 1, **keys}))
