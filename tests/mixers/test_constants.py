"""What a first use leaves behind: constants made under inference mode, in a fake mode or while compiling serve a training later."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from geomix.algebra import Algebra, operations, rotors
from geomix.algebra.pair_product import PAIR_KINDS, PairProduct, product_of_kind
from geomix.kernels.pair_features.anchored import _tile_order
from geomix.mixers import Frames, make_mixer

MIXERS = {
    **{
        f"{kind} {form}": {"mixer": "pair", "kind": kind, "form": form}
        for kind in PAIR_KINDS
        for form in ("anchored", "paper")
    },
    "rank 5": {"mixer": "pair", "rank": 5, "kind": "symmetric"},
    "learned signs": {"mixer": "pair", "signs": "learned", "weights": "offset", "gate": "add"},
    "attention": {"mixer": "attention"},
    "blocked": {"mixer": "blocked_attention"},
    "multivectors": {"mixer": "multivector_attention", "rotors": True, "value_terms": 1},
}


@pytest.fixture(autouse=True)
def nothing_kept():
    """Every test is a first use."""
    from geomix.algebra import pair_product

    kept = [operations.dense_table, _tile_order]
    kept += [getattr(pair_product, name) for name in ("_on_device", "_signs", "_sign_matrix", "_norm_form")]
    for made in kept:
        made.cache_clear()
    yield
    for made in kept:
        made.cache_clear()


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_trains_after_a_first_use_under_inference_mode(name):
    mixer = make_mixer(width=32, **({"rank": 8, **MIXERS[name]} if MIXERS[name]["mixer"] == "pair" else MIXERS[name]))
    x, lengths = torch.randn(2, 20, 32), torch.tensor([20, 12])
    with torch.inference_mode():
        frames = Frames.of(lengths, 20, 32)  # kept by the caller, as a benchmark does
        before = mixer(x, frames)
    after = mixer(x, frames)
    after.sum().backward()
    assert torch.equal(before, after)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in mixer.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_model_around_a_mixer_compiles_fullgraph(name, backend):
    torch._dynamo.reset()
    torch.manual_seed(0)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(32, 32)
            arguments = {"rank": 8, **MIXERS[name]} if MIXERS[name]["mixer"] == "pair" else MIXERS[name]
            self.mixer = make_mixer(width=32, **arguments)

        def forward(self, x, lengths):
            return self.mixer(self.inner(x), Frames.of(lengths, x.shape[1], 32))

    model, x, lengths = Model(), torch.randn(2, 20, 32), torch.tensor([20, 12])
    compiled = torch.compile(model, fullgraph=True, backend=backend)(x, lengths)
    expected = model(x, lengths)
    torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-5)
    learned = [p for p in model.parameters() if p.requires_grad]
    for a, b in zip(
        torch.autograd.grad(compiled.sum(), learned), torch.autograd.grad(expected.sum(), learned), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: operations.product(Algebra(3), x, x),
        lambda x: operations.two_sided_matrix(Algebra(3), x, x).sum(-1),
        lambda x: rotors.log(Algebra(3), rotors.exp(Algebra(3), 0.1 * x[..., :3])),
        lambda x: product_of_kind("signed", 8, 0).normaliser(x, x.flip(-1)),
        lambda x: product_of_kind("symmetric", 4).norm(x[..., :4], x[..., 4:]),
        lambda x: PairProduct.clifford(3)(x, x),
    ],
    ids=["product", "two-sided matrix", "rotors", "sign table", "small rank", "triplets"],
)
@pytest.mark.parametrize("where", ["inference", "no_grad", "fake", "meta", "vmap"])
def test_tables_serve_a_training_wherever_they_were_first_used(use, where):
    x = torch.randn(2, 8)
    if where == "inference":
        with torch.inference_mode():
            use(x.clone())
    elif where == "no_grad":
        with torch.no_grad():
            use(x)
    elif where == "fake":
        with FakeTensorMode():
            try:
                use(torch.empty(2, 8))
            except Exception as error:  # a value that decides the way is not known there
                assert "data-dependent" in str(error).lower() or "DataDependent" in type(error).__name__
    elif where == "meta":
        with torch.device("meta"):
            use(x)
    else:
        try:
            torch.vmap(use)(x)
        except RuntimeError as error:
            assert "vmap" in str(error)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(use(leaf).sum(), leaf)
    assert type(gradient) is torch.Tensor and gradient.isfinite().all()


def test_frames_made_under_inference_mode_are_ordinary_tensors():
    with torch.inference_mode():
        frames = Frames.of(torch.tensor([3, 1]), 3, 4)
    assert not any(x.is_inference() for x in (frames.lengths, frames.mask, frames.positions))
