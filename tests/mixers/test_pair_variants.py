"""Variants of the pair mixer: each against a loop over pairs and coordinates, its fast form against the paper's, and the dial's ends."""

import itertools

import pytest
import torch

from geomix.algebra.pair_product import PairProduct
from geomix.algebra.sign_dial import SignDial
from geomix.errors import UserError
from geomix.espnet_track.settings import check_study
from geomix.kernels.pair_mixer import pair_mixer, unfused
from geomix.mixers import Frames, PairMixer, make_mixer
from geomix.mixers.registry import arguments_of
from geomix.models.transformer_lm import Block, LanguageModelConfig
from geomix.settings import load, resolve
from geomix.training import step
from tests.conftest import ROOT
from tests.golden.mixers import exact, gradients, unsettled

WIDTH, LENGTHS, OFFSETS = 6, (11, 4, 1), (1, 2, 5)
VARIANTS = {
    "gate bias": {"gate_bias": 1.5},
    "gate add": {"gate": "add", "gate_bias": -0.5},
    "no gate": {"gate": "none"},
    "sum": {"pool": "sum"},
    "length kept": {"normalise": False},
    "length kept, sum, symmetric": {"normalise": False, "pool": "sum", "kind": "symmetric"},
    "a map for each offset": {"weights": "offset"},
    "a map for each offset, sum, geometric, no gate": {
        "weights": "offset", "pool": "sum", "kind": "geometric", "gate": "none",
    },
    "learned signs": {"signs": "learned", "signs_start": 0.0},
    "learned signs, rank 9": {"signs": "learned", "signs_start": 0.3, "rank": 9},
    "learned signs, a map for each offset": {"signs": "learned", "weights": "offset"},
    "learned signs, length kept": {"signs": "learned", "signs_start": 1, "normalise": False},
}  # fmt: skip
CASES = [(name, {**arguments, "two_sided": both}) for name, arguments in VARIANTS.items() for both in (True, False)] + [
    ("a map for each side", {"weights": "side"}),
    ("a map for each side, bias where empty", {"weights": "side", "empty": "bias"}),
    ("learned signs, a map for each side", {"signs": "learned", "weights": "side"}),
]
IDS = [f"{name}, {'two-sided' if arguments.get('two_sided', True) else 'causal'}" for name, arguments in CASES]


def mixer_of(arguments):
    with exact():
        mixer = unsettled(PairMixer(WIDTH, **{"rank": 4, "offsets": OFFSETS, **arguments}))
        x = torch.randn(len(LENGTHS), max(LENGTHS), WIDTH)
        return mixer, x, Frames.of(torch.tensor(LENGTHS), max(LENGTHS))


def coordinates(mixer, a, b):
    """The product of a pair, one coordinate after the other."""
    if mixer.signs is None:
        return mixer.product(a, b)
    pairs = list(itertools.combinations(range(len(a)), 2))
    return torch.stack([a[i] * b[j] + s * a[j] * b[i] for (i, j), s in zip(pairs, mixer.signs, strict=True)])


def by_loop(mixer, x, frames):
    """The mixer's output, pair by pair, from its parameters."""
    z, u = mixer.reduce(x), x
    maps = mixer.project.weight.split(mixer.product.out_dim, dim=1)
    y = torch.zeros_like(x)
    for row, length in enumerate(frames.lengths.tolist()):
        for t in range(length):
            total, count = torch.zeros(WIDTH, dtype=x.dtype), 0
            for number, offset in enumerate(OFFSETS):
                for side, other in enumerate((t - offset, t + offset) if mixer.two_sided else (t - offset,)):
                    if not 0 <= other < length:
                        continue
                    c = coordinates(mixer, z[row, min(t, other)], z[row, max(t, other)])
                    place = {"shared": 0, "side": side, "offset": number}[mixer.weights]
                    total = total + maps[place] @ (c / c.norm() if mixer.normalise else c)
                    count += 1
            g = total if mixer.pool == "sum" else total / max(count, 1)
            g = g + mixer.project.bias if count or mixer.empty == "bias" else g
            if mixer.gate is not None:
                alpha = torch.sigmoid(mixer.gate(torch.cat((u[row, t], g))) + mixer.gate_bias)
                g = (1 - alpha) * (g if mixer.gating == "add" else g - u[row, t])
            y[row, t] = g
    return y[frames.mask]


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_a_variant_is_its_definition_in_all_forms(name, arguments):
    """Values against the loop; all gradients, those of the signs among them, of the fast form against the paper's."""
    mixer, x, frames = mixer_of(arguments)
    x.requires_grad_()
    expected = by_loop(mixer, x, frames)
    found = {}
    for form in ("paper", "averaged", "anchored"):
        mixer.form = form
        y = mixer(x, frames)[frames.mask]
        torch.testing.assert_close(y, expected, rtol=1e-11, atol=1e-11)
        found[form] = gradients(y.square().mean(), mixer, x)
    reference = gradients(expected.square().mean(), mixer, x)
    for form, grads in found.items():
        for grad, other in zip(grads, reference, strict=True):
            torch.testing.assert_close(grad, other, rtol=1e-9, atol=1e-11, msg=lambda m, form=form: f"{form}: {m}")


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_what_stands_in_padding_changes_no_real_frame(name, arguments):
    mixer, x, frames = mixer_of(arguments)
    y = mixer(x, frames)
    loud = mixer(torch.where(frames.mask.unsqueeze(-1), x, 1e4), frames)
    assert torch.equal(y[frames.mask], loud[frames.mask])
    alone = mixer(x[1:2, : LENGTHS[1]], Frames.of(torch.tensor(LENGTHS[1:2]), LENGTHS[1]))
    torch.testing.assert_close(alone[0], y[1, : LENGTHS[1]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rank", [5, 12])
@pytest.mark.parametrize(("start", "kind"), [(-1.0, "wedge"), (1.0, "symmetric")])
@pytest.mark.parametrize("form", ["paper", "anchored"])
def test_the_dials_ends_are_the_wedge_and_the_symmetric_control(rank, start, kind, form):
    mixer, x, frames = mixer_of({"kind": kind, "rank": rank, "form": form})
    with exact():
        dial = PairMixer(WIDTH, rank=rank, offsets=OFFSETS, form=form, signs="learned", signs_start=start)
    dial.load_state_dict(mixer.state_dict(), strict=False)
    outcome = [m(x, frames) for m in (mixer, dial)]
    torch.testing.assert_close(outcome[1], outcome[0], rtol=1e-11, atol=1e-13)
    shared = [
        gradients(y.sum(), m)[-len(list(mixer.parameters())) :] for y, m in zip(outcome, (mixer, dial), strict=True)
    ]
    for ours, theirs in zip(shared[1], shared[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rank", [2, 7, 8, 20])
def test_the_dials_norm_is_that_of_its_coordinates_and_keeps_thin_pairs_thin(rank):
    generator = torch.Generator().manual_seed(rank)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    a, b, signs = draw(50, rank), draw(50, rank), 2 * draw(rank * (rank - 1) // 2)
    dial = SignDial.of(signs, rank)
    torch.testing.assert_close(dial.sq_norm(a, b), dial(a, b).square().sum(-1), rtol=1e-12, atol=1e-12)
    for sign, product in ((-1.0, PairProduct.wedge(rank)), (1.0, PairProduct.symmetric(rank))):
        end = SignDial.of(torch.full_like(signs, sign), rank)
        torch.testing.assert_close(end(a, b), product(a, b))
        torch.testing.assert_close(end.normaliser(a, b), product.normaliser(a, b))
    wedge = SignDial.of(-torch.ones_like(signs).float(), rank)
    near = a.float() + 1e-4 * b.float()
    found, truth = wedge.norm(a.float(), near).double(), PairProduct.wedge(rank).norm(a.float().double(), near.double())
    assert ((found - truth).abs() < 1e-2 * truth + 1e-12).all()  # fp32 is free of cancellation at the wedge


def test_the_signs_of_a_model_decay_in_no_optimiser():
    class Settings:
        optimizer, learning_rate, weight_decay, learning_rate_by_grade = "adamw", 0.1, 0.5, ()

    model = torch.nn.Sequential(make_mixer("pair", WIDTH, rank=4, signs="learned"), make_mixer("pair", WIDTH, rank=4))
    optimizer = step.make_optimizer(model, Settings, torch.device("cpu"))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.step()
    still = {name for name, p in model.named_parameters() if torch.equal(p, before[name])}
    assert still == {"0.signs"}
    assert len(step.make_optimizer(model[1], Settings, torch.device("cpu")).param_groups) == 1


def test_dropout_of_the_feature_acts_in_training_alone_and_before_the_gate():
    mixer, x, frames = mixer_of({"feature_dropout": 0.5, "gate": "none"})
    assert torch.equal(mixer.eval()(x, frames), mixer(x, frames))
    g, y = mixer(x, frames), mixer.train()(x, frames)
    kept = y != 0
    assert 0.3 < kept[frames.mask].double().mean() < 0.7
    torch.testing.assert_close(y[kept], 2 * g[kept])


@pytest.mark.parametrize(
    ("variant", "covered"),
    [
        ({}, True), ({"pool": "sum"}, True), ({"normalise": False}, True), ({"gate_bias": 2.0}, True),
        ({"gate": "add"}, False), ({"gate": "none"}, False), ({"weights": "offset"}, False), ({"weights": "side"}, False),
        ({"signs": "learned"}, False), ({"feature_dropout": 0.1}, False),
    ],
)  # fmt: skip
def test_the_dispatcher_says_what_the_fused_form_does_not_cover(variant, covered):
    mixer = make_mixer("pair", 16, rank=8, **variant)
    u = torch.randn(1, 5, 16)
    why = unfused(mixer.product, u, mixer.pairing, mixer.gating, mixer.feature_dropout, mixer.form, u.dtype)
    assert (why is None) == covered
    if not covered:
        given = mixer.product, u, mixer.reduce(u), mixer.project.weight, mixer.project.bias, *mixer._gate()
        options = {"gating": mixer.gating, "dropout": mixer.feature_dropout, **mixer._pairing}
        with pytest.raises(ValueError, match="the fused pair mixer takes"):
            pair_mixer(*given, torch.ones(1, 5, dtype=torch.bool), (1, 2), backend="fused", **options)


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ({"gate": "ad"}, ["gate 'ad'"]),
        ({"pool": "max"}, ["pool 'max'"]),
        ({"weights": "side", "two_sided": False}, ["weights side", "shared or offset"]),
        ({"signs": "learned", "kind": "symmetric"}, ["kind symmetric", "signs_start"]),
        ({"feature_dropout": 1.0}, ["feature_dropout 1.0"]),
        ({"gate_bias": float("nan")}, ["gate_bias nan"]),
    ],
)
def test_mistakes_are_one_sentence(variant, words):
    with pytest.raises(UserError) as error:
        make_mixer("pair", 16, **variant)
    assert all(word in str(error.value) for word in words) and "\n" not in str(error.value)
    with pytest.raises(UserError, match="weights 'side'"):
        arguments_of({"mixer": "pair", "weights": "side"}, causal=True)


@pytest.mark.parametrize("gate", ["article", "add", "none"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_in_the_language_model_only_the_articles_blend_stands_for_the_residual(gate, norm):
    torch.manual_seed(0)
    mixer = {"mixer": "pair", "rank": 4, "offsets": [1, 2], "gate": gate}
    block = Block(LanguageModelConfig(vocab=5, width=8, ff_dim=4, dropout=0.0, norm=norm, mixer=mixer), 0).eval()
    x, frames = torch.randn(1, 7, 8), Frames.of(torch.tensor([7]), 7)
    m = block.mixer
    given = block.norm_mixer(x) if norm == "pre" else x
    g = m.mixed(given, frames)
    gated = (1 - m.gate_value(given, g)) * (g - given if gate == "article" else g)
    expected = x + gated if norm == "pre" else block.norm_mixer(x + gated)
    expected = (
        expected + block.ff(block.norm_ff(expected)) if norm == "pre" else block.norm_ff(expected + block.ff(expected))
    )
    torch.testing.assert_close(block(x, frames), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("sides", "read"), [((1.0, 0.0), {0, 3, 4, 5}), ((0.0, 1.0), {5, 6, 7, 10}), ((1.0, -1.0), {0, 3, 4, 5, 6, 7, 10})]
)
@pytest.mark.parametrize("maps", ["shared", "side", "offset"])
def test_a_side_left_out_or_flipped_is_the_same_in_both_forms(sides, read, maps):
    mixer, x, frames = mixer_of({"gate": "none", "weights": maps})
    whole = mixer(x, frames)
    mixer.side_weights, found = sides, {}
    for mixer.form in ("paper", "anchored"):
        found[mixer.form] = mixer(x.requires_grad_(), frames)
    torch.testing.assert_close(found["anchored"], found["paper"], rtol=1e-11, atol=1e-11)
    (gradient,) = torch.autograd.grad(found["anchored"][0, 5].sum(), x)
    assert set(gradient[0].abs().sum(-1).nonzero().flatten().tolist()) == read
    if -1.0 in sides:
        mixer.side_weights = (1.0, 0.0)
        past = mixer(x, frames)[0, 5]  # of 3 pairs, where the whole has 6
        bias = mixer.project.bias
        torch.testing.assert_close(found["paper"][0, 5] + whole[0, 5] - 2 * bias, past - bias)


def test_learned_signs_are_for_the_track_own():
    config = load(ROOT / "config" / "demo.yaml", ROOT / "config" / "anatomy.yaml", base=ROOT / "config.yaml")
    check_study(config)
    config["study"]["tracks"] = ["own", "espnet"]
    with pytest.raises(UserError, match="learned signs.*track own alone"):
        check_study(resolve(config))
