"""Phases 2 and 3: what is replaced, what it costs, and that the rest stays as it was."""

import pytest
import torch

from geomix.algebra import Algebra
from geomix.algebra.operations import bilinear, product
from geomix.errors import UserError
from geomix.models.transformer_lm import LanguageModelConfig, TransformerLM
from geomix.studies.algebra.architectures import (
    ARCHITECTURES,
    AlgebraLinear,
    change_feed_forward,
    describe_architecture,
    inner_width,
    table_of,
)
from geomix.studies.algebra.components import COMPONENTS, change_component
from geomix.studies.algebra.jobs import kept_bytes
from geomix.training.seeding import seed_all

CL3 = Algebra(3)
CONFIG = LanguageModelConfig(vocab=50, positions=16, blocks=2, width=64, ff_dim=128, dropout=0.0, init_std=0.05, mixer={"mixer": "attention", "heads": 2})  # fmt: skip


def model_of(change=None, arm=None):
    seed_all(0)
    model = TransformerLM(CONFIG)
    if change:
        change(arm, model, 0)
    return model.eval()


def count(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_algebra_valued_maps_are_sums_of_products():
    x = torch.randn(4, 24)
    for table in (CL3.product(), CL3.product().shuffled(1)):
        layer = AlgebraLinear(24, 16, table)
        parts = [bilinear(table, layer.weight[0, :, c], x[:, None, 8 * c : 8 * c + 8]) for c in range(3)]
        assert torch.allclose(layer(x), sum(parts).flatten(1), atol=1e-5)
    layer = AlgebraLinear(24, 16, CL3.product(), two_sided=True)
    parts = [product(CL3, product(CL3, layer.weight[0, :, c], x[:, None, 8 * c : 8 * c + 8]), layer.weight[1, :, c]) for c in range(3)]  # fmt: skip
    assert torch.allclose(layer(x), sum(parts).flatten(1), atol=1e-4)
    with pytest.raises(UserError, match="multiples of 8"):
        AlgebraLinear(24, 12, CL3.product())


@pytest.mark.parametrize("arm", ["clifford", "shuffled"])
def test_left_multiplication_spans_as_many_maps_under_any_table(arm):
    """The shuffled arm has the capacity of the Clifford arm: eight maps for a pair of channels."""
    for seed in range(3):
        matrices = table_of(arm, seed).dense().reshape(8, 64)
        assert torch.linalg.matrix_rank(torch.from_numpy(matrices)) == 8
    assert (table_of("shuffled", 0) == table_of("shuffled", 1)) is False


@pytest.mark.parametrize("arm", ARCHITECTURES)
def test_sizes_of_every_architecture(arm):
    about, budget = (
        describe_architecture(arm, 64, 128, [0]),
        describe_architecture("wide_scalar", 64, 128, [0])["block"],
    )
    model = model_of(change_feed_forward, arm)
    assert sum(p.numel() for p in model.blocks[0].ff.parameters()) == about["block"]["parameters"]
    assert count(model) == count(model_of()) + 2 * (about["block"]["parameters"] - budget["parameters"])
    if about["held"] == "parameters":
        assert about["block"]["parameters"] == pytest.approx(budget["parameters"], rel=0.05)
    if about["held"] == "flops":
        clifford = describe_architecture("clifford", 64, 128, [0])["block"]
        assert about["block"]["macs"] == pytest.approx(clifford["macs"], rel=0.05)
    tokens = torch.randint(50, (2, 9))
    assert torch.isfinite(model(tokens[:, :-1], tokens[:, 1:])["loss"])
    # attention and embeddings start as in the scalar model
    assert torch.equal(model.blocks[1].mixer.qkv.weight, model_of().blocks[1].mixer.qkv.weight)
    print(f"{arm:20s} inner {about['inner']:4d} {about['block']} span {about.get('span')}")


def test_no_width_near_the_budget_is_said():
    with pytest.raises(UserError, match="within 5 % of .* parameters at width 16"):
        inner_width("clifford_two_sided", 16, 8)


def test_components_start_from_the_scalar_model_and_match_it_in_size():
    tokens = torch.randint(50, (2, 16), generator=torch.Generator().manual_seed(0))
    scalar = model_of()
    for arm in COMPONENTS:
        model = model_of(change_component, arm)
        assert count(model) == pytest.approx(count(scalar), rel=0.05), arm
        same = torch.allclose(model.logits(tokens), scalar.logits(tokens), atol=1e-4)
        assert same == (arm not in ("positions", "rope", "embeddings_graded")), arm


def test_multivector_embeddings_train_exactly_as_scalar_ones():
    """Why phase 2 expects `embeddings` to be identical: Adam is element-wise and sees no grades."""
    tokens = torch.randint(50, (4, 17), generator=torch.Generator().manual_seed(0))
    losses = {}
    for arm in ("scalar", "embeddings"):
        model = model_of(change_component, arm)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(tokens[:, :-1], tokens[:, 1:])["loss"]
            loss.backward()
            optimizer.step()
        losses[arm] = loss.item()
    assert losses["embeddings"] == pytest.approx(losses["scalar"], rel=1e-5)


def test_kept_bytes_counts_activations_alone():
    x, weight = torch.randn(100, 8), torch.randn(8, 4, requires_grad=True)
    # exp keeps its own output (100 x 4 floats); the product keeps x and the weight, which are given
    assert kept_bytes(lambda: (x @ weight).exp().sum(), (x, weight)) == 100 * 4 * 4
