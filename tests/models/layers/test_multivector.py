import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from geomix.algebra import Algebra, rotors
from geomix.algebra import operations as op
from geomix.errors import UserError
from geomix.mixers import Frames
from geomix.mixers.multivector_attention import MultivectorAttention, RotorPositions, ValueTransform
from geomix.models.layers.activations import ComponentActivation, GradeGate, NormActivation
from geomix.models.layers.adapters import FromMultivector, ToMultivector, initialise_from_scalar
from geomix.models.layers.embedding import MultivectorEmbedding
from geomix.models.layers.grades import Grades
from geomix.models.layers.linear import TYINGS, MultivectorLinear, stacked_linear
from geomix.models.layers.norm import MultivectorNorm
from geomix.models.layers.product import ProductLayer, dense_product, stacked_product
from geomix.settings.language import LanguageTraining
from geomix.training.options import TrainingSettings
from geomix.training.step import make_optimizer

CL3 = Algebra(3)
ALGEBRAS = [CL3, Algebra(1, 3), Algebra(3, 0, 1), Algebra(4, grades=(0, 1, 2)), Algebra(5, grades=(0, 1, 2, 3))]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def random_pin(algebra, factors):
    """A random element of Pin: a product of unit vectors that are not near the null cone."""
    full = algebra.full
    element = torch.eye(full.dim, dtype=torch.float64)[0]
    while factors:
        vector = torch.zeros(full.dim, dtype=torch.float64)
        vector[full.slice(1)] = torch.randn(full.n, dtype=torch.float64)
        size = op.sq_norm(full, vector).abs()
        if size > 0.5:
            element, factors = op.product(full, element, vector / size.sqrt()), factors - 1
    return element


def check_pin_equivariance(algebra, module, x, invariant=False, tolerance=1e-7):
    """module(V x V^-1) = V module(x) V^-1 for reflections, rotations and their products, random parameters."""
    for factors in (1, 2, 3):
        pin = random_pin(algebra, factors)
        expected = module(x) if invariant else op.sandwich(algebra, pin, module(x))
        ours = module(op.sandwich(algebra, pin, x))
        torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


def randomise(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5 + 0.3)
    return module.double()


def layers(algebra):
    yield MultivectorLinear(algebra, 3, 5, terms=0), False
    yield ProductLayer(algebra, 3, 4), False
    yield NormActivation(algebra, 3), False
    yield MultivectorNorm(algebra, 3), False
    yield FromMultivector(algebra, 3, 7, invariant=True), True


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_equivariance_under_random_pin_elements(algebra):
    x = torch.randn(6, 3, algebra.dim, dtype=torch.float64)
    for module, invariant in layers(algebra):
        if isinstance(module, ProductLayer) and len(algebra.grades) <= algebra.n and algebra.r == 0 and algebra.n > 4:
            continue  # kept below: products of truncated algebras are equivariant too, checked once for n = 4
        check_pin_equivariance(algebra, randomise(module), x, invariant)


def test_truncated_product_is_equivariant_and_a_shuffled_one_is_not():
    algebra = Algebra(5, grades=(0, 1, 2, 3))
    x = torch.randn(6, 3, algebra.dim, dtype=torch.float64)
    layer = randomise(ProductLayer(algebra, 3, 4))
    check_pin_equivariance(algebra, layer, x)
    shuffled = lambda m: op.bilinear(algebra.product().shuffled(0), m, m)
    with pytest.raises(AssertionError):
        check_pin_equivariance(algebra, shuffled, x)
    with pytest.raises(AssertionError):  # and neither are the coefficient-wise nonlinearities
        check_pin_equivariance(algebra, ComponentActivation(), x)
    with pytest.raises(AssertionError):
        check_pin_equivariance(algebra, randomise(GradeGate(algebra, 3)), x)


@pytest.mark.parametrize("tying", TYINGS)
@pytest.mark.parametrize("terms", [0, 1, 3])
@pytest.mark.parametrize("algebra", [CL3, Algebra(4, grades=(0, 1, 2))], ids=str)
def test_linear_map_equals_the_formula_written_out(tying, terms, algebra):
    """y = sum A x B + b by clifford-checked products, one channel and one term at a time."""
    if tying == "none" and not terms:
        with pytest.raises(UserError, match="at least one term"):
            MultivectorLinear(algebra, 2, 3, terms, tying)
        return
    layer = randomise(MultivectorLinear(algebra, 2, 3, terms, tying, bias="full"))
    x = torch.randn(4, 2, algebra.dim, dtype=torch.float64)
    expected = torch.zeros(4, 3, algebra.dim, dtype=torch.float64)
    for o in range(3):
        expected[:, o] += layer.bias[o]
        for t in range(max(terms, 1)):
            for c in range(2):
                m = x[:, c] if tying == "none" else x[:, c] * layer.mixing()[t, o, c]
                if terms:
                    pair = (t, o, c) if tying == "none" else (t, o)
                    m = op.product(algebra, op.product(algebra, layer.left()[pair], m), layer.right()[pair])
                expected[:, o] += m
    torch.testing.assert_close(layer(x), expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(layer.products(x), expected, rtol=1e-10, atol=1e-10)


def test_parameter_counts_follow_the_documented_formula():
    for algebra in (CL3, Algebra(4, grades=(0, 1, 2))):
        dim, grades = algebra.dim, len(algebra.grades)
        for terms in (1, 2):
            counts = {
                tying: sum(p.numel() for p in MultivectorLinear(algebra, 5, 7, terms, tying).parameters())
                for tying in TYINGS
            }
            assert counts["grade"] == terms * (7 * 5 * grades + 2 * 7 * dim) + 7
            assert counts["component"] == terms * (7 * 5 * dim + 2 * 7 * dim) + 7
            assert counts["none"] == terms * 2 * 7 * 5 * dim + 7
    # GATr issue #4: the product layer has three maps of x
    assert len([m for m in ProductLayer(CL3, 2, 2).modules() if isinstance(m, MultivectorLinear)]) == 3


def test_grade_tying_shares_one_weight_a_grade():
    layer = MultivectorLinear(CL3, 2, 2, terms=0)
    weights = layer.mixing()
    for grade in CL3.grades:
        part = weights[..., CL3.slice(grade)]
        assert (part == part[..., :1]).all()
    free = MultivectorLinear(CL3, 2, 2, terms=0, tying="component").mixing()
    assert not (free[..., 1:2] == free[..., 2:3]).any()


@pytest.mark.parametrize("n,rank", [(1, 2), (2, 16), (3, 32), (4, 256)])
def test_rank_of_the_two_sided_maps(n, rank):
    """x -> e_I x e_J spans every linear map in Cl(2) and Cl(4), half of them in Cl(3), where the pseudoscalar commutes."""
    algebra = Algebra(n)
    basis = torch.eye(algebra.dim, dtype=torch.float64)
    maps = op.two_sided_matrix(algebra, basis[:, None], basis[None, :]).flatten(0, 1).flatten(1)
    assert torch.linalg.matrix_rank(maps) == rank


def test_scalar_baseline_is_reproduced_at_the_start():
    weight, bias = torch.randn(5, 4), torch.randn(5)
    x = torch.randn(3, 4)
    scalars = F.pad(x.unsqueeze(-1), (0, CL3.dim - 1))
    for tying, terms in [("grade", 0), ("grade", 2), ("component", 1), ("none", 2)]:
        layer = MultivectorLinear(CL3, 4, 5, terms, tying)
        initialise_from_scalar(layer, weight, bias, noise=0)
        out = layer(scalars)
        torch.testing.assert_close(out[..., 0], F.linear(x, weight, bias))
        assert (out[..., 1:] == 0).all()
        initialise_from_scalar(layer, weight, bias, noise=1e-4)
        out = layer(scalars)
        torch.testing.assert_close(out[..., 0], F.linear(x, weight, bias), atol=5e-3, rtol=5e-3)
        if terms:
            assert 0 < out[..., 1:].abs().max() < 1e-2
    with pytest.raises(UserError, match=r"\(4, 4\)"):
        initialise_from_scalar(layer, torch.randn(4, 4))


def test_grades_are_trained_at_their_own_rates():
    model = nn.Sequential(MultivectorEmbedding(7, 4, CL3), MultivectorLinear(CL3, 4, 2), FromMultivector(CL3, 2, 1))
    training = LanguageTraining(learning_rate=0.1, learning_rate_by_grade=[1.0, 0.5, 0.0]).model_dump()
    settings = TrainingSettings(**{f.name: training[f.name] for f in dataclasses.fields(TrainingSettings)})
    groups = make_optimizer(model, settings, torch.device("cpu")).param_groups
    assert sum(len(g["params"]) for g in groups) == len(list(model.parameters()))
    optimiser = torch.optim.SGD([{"params": g["params"], "lr": 0.1 * g["factor"]} for g in groups])
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    model(torch.arange(7)).square().sum().backward()
    optimiser.step()
    for name, parameter in model.named_parameters():
        rate = {"grade1": 0.05, "grade2": 0.0}.get(name.split(".")[-1], 0.1)
        torch.testing.assert_close(parameter.detach(), before[name] - rate * parameter.grad)


def test_embedding_keeps_the_grades_apart_and_ties_to_a_head():
    embedding = MultivectorEmbedding(11, 3, CL3)
    ids = torch.tensor([[1, 5], [10, 0]])
    assert embedding(ids).shape == (2, 2, 3, 8)
    torch.testing.assert_close(embedding(ids).flatten(-2), F.embedding(ids, embedding.weight))


@pytest.mark.parametrize("module", [NormActivation(CL3, 2), GradeGate(CL3, 2), ComponentActivation(), MultivectorNorm(CL3, 2), FromMultivector(CL3, 2, 3, invariant=True)])  # fmt: skip
def test_gradients_are_finite_at_zero(module):
    x = torch.zeros(3, 2, 8, requires_grad=True)
    module(x).sum().backward()
    assert x.grad.isfinite().all()


def test_norm_activation_maps_magnitudes_and_keeps_directions():
    x = torch.randn(5, 2, 8, dtype=torch.float64)
    y = NormActivation(CL3, 2).double()(x)
    norms = Grades(CL3)
    before, after = norms(x), norms(y)
    torch.testing.assert_close(after, F.silu(before))
    for g in CL3.grades:
        s = CL3.slice(g)
        torch.testing.assert_close(y[..., s] / after[..., g : g + 1], x[..., s] / before[..., g : g + 1])


def test_adapters_reach_the_named_grades_and_back():
    adapter = ToMultivector(CL3, 6, 4, grades=(0, 2))
    y = adapter(torch.randn(3, 6))
    assert y.shape == (3, 4, 8)
    assert (y[..., CL3.slice(1)] == 0).all() and (y[..., CL3.slice(3)] == 0).all() and (y[..., CL3.slice(2)] != 0).all()
    assert FromMultivector(CL3, 4, 6)(y).shape == (3, 6)


# -- attention ----------------------------------------------------------------------------------------------------------------


def frames_of(*lengths):
    return Frames.of(torch.tensor(lengths), max(lengths))


def plain_attention(module, x, causal=False):
    batch, time, width = x.shape
    q, k, v = module.qkv(x).view(batch, time, 3, module.heads, -1).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) / math.sqrt(width / module.heads)
    if causal:
        scores = scores.masked_fill(torch.ones(time, time).triu(1).bool(), -torch.inf)
    return module.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, width))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_vectors_is_dot_product_attention(causal):
    module = MultivectorAttention(24, 2, (6, 0, 0), (1,), causal=causal).double()
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    torch.testing.assert_close(module(x, frames_of(5, 5)), plain_attention(module, x, causal))


@pytest.mark.parametrize("signature", [(3, 0, 0), (1, 3, 0), (2, 0, 1)])
@pytest.mark.parametrize("temperature", ["head", "grade"])
def test_score_is_the_scalar_part_of_q_times_k_reversed(signature, temperature):
    algebra = Algebra(*signature)
    width = 2 * 3 * algebra.dim
    module = MultivectorAttention(width, 2, signature, temperature=temperature).double()
    nn.init.normal_(module.log_temperature)
    x = torch.randn(1, 4, width, dtype=torch.float64)
    q, k, v = module.qkv(x).view(4, 3, 2, 3, algebra.dim).permute(1, 2, 0, 3, 4)
    product = op.product(algebra, q[:, :, None], op.reverse(algebra, k)[:, None])
    if temperature == "head":
        scores = product[..., 0].sum(-1) / module.log_temperature.exp()[:, :, None]
    else:
        scores = sum(
            op.product(algebra, op.project(algebra, q, g)[:, :, None], op.reverse(algebra, op.project(algebra, k, g))[:, None])[..., 0].sum(-1)
            / module.log_temperature.exp()[:, i, None, None]
            for i, g in enumerate(algebra.grades)
        )  # fmt: skip
    mixed = torch.einsum("hts,hscd->thcd", scores.softmax(-1), v).reshape(1, 4, width)
    torch.testing.assert_close(module(x, frames_of(4)), module.out(mixed))


def test_self_similarity_is_a_squared_norm_only_with_reversion():
    """Without ~ the scalar part of q q gets a sign per grade (article, section 4.2)."""
    q = torch.randn(50, 8, dtype=torch.float64)
    with_reversion = op.product(CL3, q, op.reverse(CL3, q))[..., 0]
    torch.testing.assert_close(with_reversion, q.square().sum(-1))
    assert (op.product(CL3, q, q)[..., 0] < 0).any()


@pytest.mark.parametrize("signature", [(3, 0, 0), (1, 3, 0), (3, 0, 1)])
def test_attention_with_grade_tied_projections_is_equivariant(signature):
    """Its score is invariant under Pin, so only the projections could break the symmetry."""
    algebra = Algebra(*signature)
    heads, channels = 2, 2
    module = MultivectorAttention(heads * channels * algebra.dim, heads, signature, temperature="grade").double()
    width = heads * channels
    tied = lambda: randomise(MultivectorLinear(algebra, width, width, terms=0, bias="none")).weight_matrix()
    with torch.no_grad():
        module.log_temperature.add_(torch.randn_like(module.log_temperature) * 0.1)
        module.qkv.weight.copy_(torch.cat([tied() for _ in range(3)]) * 0.3)
        module.out.weight.copy_(tied())
        module.qkv.bias.zero_()
        module.out.bias.zero_()
    frames = frames_of(6)
    attend = lambda x: module(x.flatten(-2), frames).unflatten(-1, (width, algebra.dim))
    x = torch.randn(1, 6, width, algebra.dim, dtype=torch.float64) * 0.3
    check_pin_equivariance(algebra, attend, x)
    free = MultivectorAttention(width * algebra.dim, heads, signature).double()
    with pytest.raises(AssertionError):
        check_pin_equivariance(algebra, lambda x: free(x.flatten(-2), frames).unflatten(-1, (width, algebra.dim)), x)


def test_padding_and_the_future_do_not_reach_real_frames():
    module = MultivectorAttention(48, 2, rotors=True, value_terms=2)
    x = torch.randn(2, 7, 48)
    changed = x.clone()
    changed[1, 4:] = 100.0
    torch.testing.assert_close(module(changed, frames_of(7, 4))[1, :4], module(x, frames_of(7, 4))[1, :4])
    causal = MultivectorAttention(48, 2, causal=True, rotors=True)
    changed = x.clone()
    changed[:, 4:] = 100.0
    torch.testing.assert_close(causal(changed, frames_of(7, 7))[:, :4], causal(x, frames_of(7, 7))[:, :4])


def test_rotor_positions_recover_rope():
    """Cl(2) with grade 1: channel c turns by t base^(-c/C), which is RoPE on the pairs (2c, 2c+1) (arXiv 2104.09864, eq. 34)."""
    channels, time, base = 8, 50, 10000.0
    x = torch.randn(time, channels, 2, dtype=torch.float64)
    turn = RotorPositions(Algebra(2, grades=(1,)), channels, base)(time)
    ours = torch.einsum("tcij,tcj->tci", turn, x)
    angle = torch.arange(time)[:, None] * base ** (-2 * torch.arange(channels, dtype=torch.float64) / (2 * channels))
    cos, sin = angle.cos(), angle.sin()
    rope = torch.stack((x[..., 0] * cos - x[..., 1] * sin, x[..., 0] * sin + x[..., 1] * cos), -1)
    torch.testing.assert_close(ours, rope, atol=1e-5, rtol=0)  # rates are stored in fp32


@pytest.mark.parametrize("signature,grades", [((3, 0, 0), None), ((4, 0, 0), (0, 1, 2)), ((1, 3, 0), None)])
def test_rotor_positions_are_sandwiches_and_scores_depend_on_distance(signature, grades):
    algebra = Algebra(*signature, grades=grades)
    positions = RotorPositions(algebra, 3).double()
    with torch.no_grad():
        positions.bivectors.add_(torch.randn_like(positions.bivectors) * 0.1)  # non-simple bivectors for n = 4
    turn = positions(6)
    for t in range(6):
        rotor = rotors.exp(algebra, -t / 2 * positions.bivectors)
        torch.testing.assert_close(turn[t], op.sandwich_matrix(algebra, rotor, algebra.even), atol=1e-9, rtol=1e-9)
    q, k = torch.randn(2, 3, algebra.dim, dtype=torch.float64)
    score = lambda s, t: (
        op.signs(algebra.squares, q) * (turn[s] @ q[..., None])[..., 0] * (turn[t] @ k[..., None])[..., 0]
    ).sum()
    torch.testing.assert_close(score(0, 3), score(2, 5), atol=1e-8, rtol=1e-8)
    with pytest.raises(UserError, match="no plane to rotate"):
        RotorPositions(Algebra(1, 1), 2)


def test_value_transform_starts_as_the_identity():
    transform = ValueTransform(CL3, 2, 3, terms=1)
    v = torch.randn(1, 2, 4, 3, 8)
    assert torch.equal(transform(v), v)


def test_mistakes_end_in_a_sentence():
    with pytest.raises(UserError, match="multiple of 32"):
        MultivectorAttention(40, 4)
    with pytest.raises(UserError, match="temperature 'token'"):
        MultivectorAttention(32, 4, temperature="token")
    with pytest.raises(UserError, match="signature"):
        MultivectorAttention(32, 4, (-1, 0, 0))
    with pytest.raises(UserError, match="tying 'all'"):
        MultivectorLinear(CL3, 1, 1, tying="all")
    for sizes in ((0, 1), (1, 0), (1, 1, -1)):
        with pytest.raises(UserError, match="at least 1, 1 and 0"):
            MultivectorLinear(CL3, *sizes)
    layer = MultivectorLinear(CL3, 2, 1)
    for forward in (layer, layer.products):
        with pytest.raises(ValueError, match="2 channels and 8 components"):
            forward(torch.ones(3, 4, 4))


def test_layers_compile_fullgraph_and_run_in_bf16():
    torch._dynamo.reset()
    model = nn.Sequential(
        ToMultivector(CL3, 6, 4), MultivectorLinear(CL3, 4, 4, 2), ProductLayer(CL3, 4, 4), NormActivation(CL3, 4),
        MultivectorNorm(CL3, 4), GradeGate(CL3, 4), FromMultivector(CL3, 4, 3),
    )  # fmt: skip
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 6)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    compiled(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    attention = MultivectorAttention(48, 2, rotors=True, value_terms=1)
    y, frames = torch.randn(2, 5, 48), frames_of(5, 3)
    compiled = torch.compile(lambda a: attention(a, frames), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(y), attention(y, frames), rtol=1e-4, atol=1e-5)
    expected = model(x)
    low = model.bfloat16()(x.bfloat16())
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), expected, rtol=0.1, atol=0.1)


def null(algebra, kind):
    """A multivector without a norm, unit coefficients: a null basis vector, a light-like vector, or one of random grades."""
    x = torch.zeros(algebra.dim)
    if kind == "basis":
        x[algebra.index(f"e{algebra.n}")] = 1
    elif kind == "light":
        x[algebra.index("e1")] = x[algebra.index("e2")] = 1
    else:  # null in every grade: the same coefficients on positive and negative squares
        for grade in algebra.grades:
            places = torch.arange(algebra.dim)[algebra.slice(grade)]
            squares = torch.tensor(algebra.squares.tolist())[places]
            up, down = places[squares > 0], places[squares < 0]
            pairs = min(len(up), len(down))
            x[up[:pairs]] = x[down[:pairs]] = 0.5
            x[places[squares == 0]] = 0.5
    return x


@pytest.mark.parametrize("size", [1e-12, 1e-3, 1.0, 2.0, 2e3, 1e10, 1e20, 1e30])
@pytest.mark.parametrize(
    "signature,kind",
    [((3, 0, 1), "basis"), ((1, 1), "light"), ((1, 3), "light"), ((1, 3), "grades"), ((2, 0, 2), "basis")],
)
def test_null_multivectors_stay_bounded_through_layers_of_norms(signature, kind, size):
    """They grew a thousandfold a layer: 2e3 became 2e12 after four."""
    algebra = Algebra(*signature)
    norm = MultivectorNorm(algebra, 2)
    x = (size * null(algebra, kind)).expand(1, 2, -1).clone().requires_grad_()
    y = x
    for _ in range(4):
        y = norm(y)
        assert y.abs().max() <= min(size, 1) * 1.0001
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), (x, norm.gain)))


@pytest.mark.parametrize("signature", [(3,), (3, 0, 1), (1, 1), (1, 3)])
def test_norm_is_one_after_the_norm_layer_whatever_the_scale(signature):
    algebra = Algebra(*signature)
    norm = MultivectorNorm(algebra, 3)
    x = torch.randn(500, 3, algebra.dim)
    sure = norm.grades(x).square().sum(-1).mean(-1) > 0.3  # not near the null cone
    for size in (1.0, 1e3, 1e15, 1e20, 1e30):
        after = norm.grades(norm(size * x)).square().sum(-1).mean(-1)
        assert ((after[sure] - 1).abs() < 1e-4).all()


@pytest.mark.parametrize("signature", [(3,), (3, 0, 1), (1, 3)])
def test_nan_stays_nan_in_norms_and_activations(signature):
    algebra = Algebra(*signature)
    x = torch.ones(2, 3, algebra.dim)
    x[0, 1, 0] = torch.nan
    for layer in (
        MultivectorNorm(algebra, 3),
        NormActivation(algebra, 3),
        FromMultivector(algebra, 3, 4, True),
    ):
        y = layer(x)
        assert y[0].isnan().any() and y[1].isfinite().all()
    assert MultivectorNorm(algebra, 3)(x)[0].isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("signature", [(3,), (3, 0, 1), (1, 3)])
def test_norms_of_half_precision_are_those_of_fp32(signature, dtype):
    """300^2 is no fp16 number; under autocast a bf16 product of the squares would cancel against their rounding."""
    algebra = Algebra(*signature)
    x = (300 * torch.randn(20, 3, algebra.dim)).to(dtype)
    grades = Grades(algebra)
    exact = grades(x.double())
    assert ((grades(x).double() - exact).abs() <= 2 * torch.finfo(dtype).eps * exact + 0.3).all()
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(grades(x.float()), grades(x.double()).float(), rtol=1e-4, atol=0.3)
    assert MultivectorNorm(algebra, 3)(x).isfinite().all()


def test_a_stack_of_models_is_the_layers_one_by_one():
    """What phase 1 trains at once, components before channels, is `ProductLayer` for each table and seed."""
    tables, seeds, inputs, outputs, count = 2, 3, 3, 4, 5
    products = [CL3.product(), CL3.product().shuffled(1)]
    x = torch.randn(tables, CL3.dim, seeds, inputs, count, dtype=torch.float64)
    weight = {name: torch.randn(tables, seeds, 4, outputs, inputs, dtype=torch.float64) for name in "uvw"}
    bias = {name: torch.randn(tables, seeds, outputs, 1, dtype=torch.float64) for name in "uvw"}
    grade = torch.from_numpy(CL3.grade)
    u, v, w = (stacked_linear(weight[name], bias[name], grade, x) for name in "uvw")
    y = stacked_product(products, u, v) + w
    torch.testing.assert_close(y, dense_product(products, u, v) + w)
    for t, s in ((0, 0), (0, 2), (1, 1)):
        layer = ProductLayer(CL3, inputs, outputs).double()
        layer.triplets = products[t]
        with torch.no_grad():
            for name, one in zip("uvw", (layer.first, layer.second, layer.linear), strict=True):
                for g in CL3.grades:
                    one.mixing.of(g).copy_(weight[name][t, s, g].view(1, outputs, inputs, 1))
                one.bias.copy_(bias[name][t, s])
        torch.testing.assert_close(layer(x[t, :, s].permute(2, 1, 0)).permute(2, 1, 0), y[t, :, s])


def test_even_factors_are_whole_ones_with_zeros():
    even, whole = (MultivectorLinear(CL3, 2, 3, 2, factors=factors).double() for factors in ((0, 2), None))
    with torch.no_grad():
        for side in ("left", "right"):
            for grade in CL3.grades:
                getattr(whole, side).of(grade).copy_(
                    getattr(even, side).of(grade) if grade in (0, 2) else torch.zeros(())
                )
        for grade in CL3.grades:
            whole.mixing.of(grade).copy_(even.mixing.of(grade))
    x = torch.randn(4, 2, 8, dtype=torch.float64)
    torch.testing.assert_close(even(x), whole(x))
    torch.testing.assert_close(even(x), even.products(x))
    with pytest.raises(UserError, match="factors"):
        MultivectorLinear(CL3.even, 2, 3, factors=(1,))
