"""What an arm replaces beside the mixer: what it is, what it costs, and that the rest stays as it was."""

import pytest
import torch
from torch import nn

from geomix.algebra import Algebra
from geomix.algebra.operations import bilinear, product
from geomix.errors import UserError
from geomix.models.architectures import model_config
from geomix.models.config.maps import table_of
from geomix.models.config.transformer_lm import LanguageModelConfig
from geomix.models.layers.maps import AlgebraLinear, make_map
from geomix.models.saved import load_model, save_model
from geomix.models.transformer_lm import TransformerLM, load_language_model, save_language_model
from geomix.settings.replacements import FeedForward, LinearMap, in_words
from geomix.settings.sizes import block_size, inner_width, map_size

CL3 = Algebra(3)
ATTENTION = {"mixer": "attention", "heads": 2}
MULTIVECTOR = {"mixer": "multivector_attention", "heads": 2, "temperature": "dot"}
MAPS = {
    "dense": {"map": "dense"},
    "low rank": {"map": "low_rank"},
    "grouped": {"map": "grouped"},
    "complex": {"map": "complex"},
    "quaternion": {"map": "quaternion"},
    "clifford": {"map": "clifford"},
    "shuffled": {"map": "clifford", "table": "shuffled"},
    "two-sided": {"map": "clifford", "two_sided": True},
    "space-time": {"map": "clifford", "signature": [1, 3, 0]},
    "multivectors": {"map": "multivector"},
    "A x B": {"map": "multivector", "terms": 2, "tying": "component", "table": "shuffled"},
    "even A x B": {"map": "multivector", "terms": 2, "factors": [0, 2]},
    "no scalars": {"map": "multivector", "grades": [1, 2]},
}


def language_config(replaced, mixer=ATTENTION):
    values = {"vocab": 50, "positions": 16, "blocks": 2, "width": 96, "ff_dim": 192, "dropout": 0.0, "init_std": 0.05}
    return LanguageModelConfig.from_dict({**values, "mixer": mixer, "replaced": replaced})


def language_model(replaced=None, mixer=ATTENTION):
    torch.manual_seed(0)
    return TransformerLM(language_config(replaced or {}, mixer)).eval()


def conformer_config(replaced):
    return model_config({"vocab": 9, "blocks": 2, "width": 96, "ff_dim": 192, "kernel": 5, "replaced": replaced})


def trained(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def maps_of(module):
    """Multiply-adds of what a module's maps are applied as."""
    total = 0
    for child in module.modules():
        if isinstance(child, AlgebraLinear):
            total += child.matrix().numel()
        elif hasattr(child, "weight_matrix"):
            total += child.weight_matrix().numel()
        elif isinstance(child, nn.Linear) or type(child).__name__ == "GroupedLinear":
            total += child.weight.numel()
    return total


@pytest.mark.parametrize("name", MAPS)
def test_sizes_of_maps_by_formula(name):
    spec = LinearMap(**MAPS[name])
    layer = make_map(spec, 96, 192, width=96, seed=0)
    size = map_size(spec, 96, 192, 96)
    assert size.parameters == trained(layer) and size.macs == maps_of(layer)
    x = torch.randn(40, 7, 96, generator=torch.Generator().manual_seed(0))
    assert layer(x).shape == (40, 7, 192)
    if name != "no scalars":  # outputs of about the variance of the inputs
        assert 0.3 < layer(x).var() < 3


@pytest.mark.parametrize("name", MAPS)
def test_models_with_replaced_maps_have_the_size_that_is_said(name):
    spec = MAPS[name]
    for replaced in (
        {"feed_forward": spec},
        {"projections": spec},
        {"projections": {**spec, "of": ["q", "v"]}, "feed_forward": {"map": "dense", "inner": 40}},
    ):
        for config in (language_config(replaced), conformer_config(replaced)):
            model = config.build() if hasattr(config, "build") else TransformerLM(config)
            assert config.parameters() == trained(model), replaced
        model, tokens = language_model(replaced), torch.randint(50, (2, 9))
        assert torch.isfinite(model(tokens[:, :-1], tokens[:, 1:])["loss"])
        own = language_config({})
        extra = sum(maps_of(block) for block in model.blocks) - sum(maps_of(b) for b in language_model().blocks)
        assert model.config.macs_per_token(16) - own.macs_per_token(16) == extra


@pytest.mark.parametrize("name", [name for name in MAPS if not name.startswith(("dense", "no", "A"))])
def test_feed_forward_holds_the_parameters_of_the_dense_block(name):
    budget = block_size(None, 96, 192).parameters
    assert block_size(FeedForward(**MAPS[name]), 96, 192).parameters == pytest.approx(budget, rel=0.05)
    clifford = block_size(FeedForward(map="clifford"), 96, 192)
    dense = block_size(FeedForward(map="dense", inner_of="clifford"), 96, 192)
    assert dense.macs == clifford.macs and dense.parameters > 7 * clifford.parameters
    with pytest.raises(UserError, match="within 5 % of .* parameters at width 16"):
        inner_width(FeedForward(map="clifford", two_sided=True), 16, 8)


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


@pytest.mark.parametrize("name", ["clifford", "shuffled"])
def test_left_multiplication_spans_as_many_maps_under_any_table(name):
    """The shuffled map has the capacity of the Clifford map: eight maps for a pair of channels."""
    spec = LinearMap(**MAPS[name])
    for seed in range(3):
        assert torch.linalg.matrix_rank(torch.from_numpy(table_of(spec, seed).dense().reshape(8, 64))) == 8
    assert (table_of(spec, 0) == table_of(spec, 1)) is (name == "clifford")


EMBEDDED = {"embedding": {"signature": [3, 0, 0]}}
NO_TABLE = {"positions": {"table": "none"}}


@pytest.mark.parametrize(
    "replaced, mixer, same",
    [
        (EMBEDDED, ATTENTION, True),
        ({"embedding": {"higher_grades": 0.1}}, ATTENTION, False),
        ({}, {**MULTIVECTOR, "temperature": "grade"}, True),
        ({}, {**MULTIVECTOR, "value_terms": 1}, True),
        (NO_TABLE, {**MULTIVECTOR, "rotors": True}, False),
        (NO_TABLE, {**MULTIVECTOR, "signature": [2, 0, 0], "grades": [1], "rotors": True}, False),
    ],
    ids=["embedding", "graded", "qk", "values", "positions", "rope"],
)
def test_components_start_as_the_scalar_model(replaced, mixer, same):
    tokens = torch.randint(50, (2, 16), generator=torch.Generator().manual_seed(0))
    scalar, model = language_model(), language_model(replaced, mixer)
    assert trained(model) == model.config.parameters() == pytest.approx(trained(scalar), rel=0.05)
    assert torch.allclose(model.logits(tokens), scalar.logits(tokens), atol=1e-4) == same
    assert torch.equal(model.blocks[1].mixer.qkv.weight, scalar.blocks[1].mixer.qkv.weight)
    changed = tokens.clone()
    changed[:, 9:] = 0
    assert torch.allclose(model.logits(changed)[:, :9], model.logits(tokens)[:, :9], atol=1e-5)


def test_what_is_replaced_draws_apart():
    """All else starts as in the model that replaces nothing, in both models; the stream behind it goes on as if it were."""
    replaced = {"feed_forward": {"map": "clifford", "table": "shuffled"}, "projections": {"of": ["q"]}}
    torch.manual_seed(0)
    plain, after = conformer_config({}).build(), torch.rand(1)
    torch.manual_seed(0)
    model = conformer_config(replaced).build()
    assert torch.equal(torch.rand(1), after)
    for name, parameter in plain.named_parameters():
        if ".feed_forward" not in name and "linear_q" not in name:
            assert torch.equal(parameter, model.get_parameter(name)), name
    other = language_model({"projections": {"of": ["q"]}})
    qkv, width = language_model().blocks[0].mixer.qkv, 96
    assert torch.equal(other.blocks[0].mixer.qkv.k.weight, qkv.weight[width : 2 * width])
    assert torch.equal(other.blocks[0].mixer.qkv.v.bias, qkv.bias[2 * width :])


def test_multivector_embeddings_train_exactly_as_scalar_ones():
    """Why phase 2 expects `embeddings` to be identical: Adam is element-wise and sees no grades."""
    tokens = torch.randint(50, (4, 17), generator=torch.Generator().manual_seed(0))
    losses = []
    for replaced in ({}, EMBEDDED):
        model = language_model(replaced)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(tokens[:, :-1], tokens[:, 1:])["loss"]
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_replaced_models_load_from_their_folder(tmp_path):
    everything = {"feed_forward": MAPS["shuffled"], "projections": MAPS["A x B"]}
    tokens = torch.randint(50, (1, 12))
    model = language_model({**everything, **EMBEDDED, **NO_TABLE})
    save_language_model(model, tmp_path / "lm")
    assert torch.equal(load_language_model(tmp_path / "lm").logits(tokens), model.logits(tokens))
    speech = conformer_config(everything).build().eval()
    save_model(speech, tmp_path / "ctc")
    features, lengths = torch.randn(1, 40, 80), torch.tensor([40])
    assert torch.equal(
        load_model(tmp_path / "ctc").log_probs(features, lengths)[0], speech.log_probs(features, lengths)[0]
    )


def test_what_is_said_of_it():
    assert in_words({"feed_forward": MAPS["shuffled"], "embedding": {}}) == [
        "feed_forward clifford table=shuffled",
        "embedding",
    ]
    assert in_words({"feed_forward": {}}) == ["feed_forward dense"]


def test_a_saved_model_with_tables_of_an_algebra_loads_and_gives_the_same(tmp_path):
    mixer = {**MULTIVECTOR, "rotors": True}
    values = {"vocab": 9, "blocks": 1, "width": 32, "ff_dim": 32, "kernel": 5, "dropout": 0.0, "mixer": mixer}
    torch.manual_seed(0)
    model = model_config({**values, "replaced": {"feed_forward": {"map": "clifford"}}}).build().eval()
    save_model(model, tmp_path)
    features, lengths = torch.randn(2, 60, 80), torch.tensor([60, 40])
    assert torch.equal(load_model(tmp_path).encode(features, lengths)[0], model.encode(features, lengths)[0])
