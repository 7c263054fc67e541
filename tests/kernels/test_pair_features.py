"""The paper's form against a loop, and the anchored form against the paper's: values, every gradient, thin pairs."""

import importlib
import math

import numpy as np
import pytest
import torch

from geomix.algebra.pair_product import PAIR_KINDS, PairProduct, product_of_kind
from geomix.kernels.pair_features import pair_mix

anchored_module = importlib.import_module("geomix.kernels.pair_features.anchored")  # the package names the function so
OFFSETS = (1, 2, 4, 8, 12, 16)


def ragged(batch: int, frames: int) -> torch.Tensor:
    """A mask with the lengths frames, 1 and others between."""
    lengths = torch.tensor([frames, 1, *range(2, frames, max(1, frames // batch))][:batch])
    return torch.arange(frames) < lengths.unsqueeze(1)


@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_paper_form_is_a_loop_over_pairs(kind, two_sided):
    f, mask = product_of_kind(kind, 4, 3), ragged(3, 9)
    z, w = torch.randn(3, 9, 4, dtype=torch.float64), torch.randn(5, f.out_dim, dtype=torch.float64)
    offsets, expected, counts = (1, 3, 7), np.zeros((3, 9, 5)), np.zeros((3, 9))
    for b, t, d in np.ndindex(3, 9, len(offsets)):
        for other in (t - offsets[d], t + offsets[d]) if two_sided else (t - offsets[d],):
            if 0 <= other < 9 and mask[b, t] and mask[b, other]:
                p = f(z[b, min(t, other)], z[b, max(t, other)])
                expected[b, t] += (w @ p / p.norm()).numpy()  # generic vectors: far from thin
                counts[b, t] += 1
    expected /= np.maximum(counts, 1)[..., None]
    g, count = pair_mix(f, z, w, mask, offsets, two_sided=two_sided, form="paper")
    np.testing.assert_allclose(g.numpy(), expected, atol=1e-13)
    assert count.tolist() == counts.tolist()


@pytest.mark.parametrize("two_sided", [True, False], ids=["two-sided", "causal"])
@pytest.mark.parametrize(
    ("batch", "frames", "r", "width"), [(1, 1, 3, 2), (3, 21, 7, 11), (2, 33, 8, 5), (4, 40, 32, 63)]
)
@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_anchored_form_equals_the_papers(kind, batch, frames, r, width, two_sided, monkeypatch):
    monkeypatch.setattr(anchored_module, "CHUNK", 17)  # chunks end inside utterances
    f, mask = product_of_kind(kind, r, 3), ragged(batch, frames)
    z = torch.randn(batch, frames, r, dtype=torch.float64, requires_grad=True)
    w = torch.randn(width, f.out_dim, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(batch, frames, width, dtype=torch.float64)
    results = []
    for form in ("paper", "anchored"):
        g, count = pair_mix(f, z, w, mask, OFFSETS, two_sided=two_sided, form=form)
        results.append((g, count, *torch.autograd.grad(g, (z, w), weights)))
    for paper, anchored in zip(*results, strict=True):
        torch.testing.assert_close(anchored, paper, rtol=1e-12, atol=1e-12)


def test_anchored_form_serves_any_bilinear_product():
    complex_product = PairProduct(2, 2, ((0, 0, 0, 1), (1, 1, 0, -1), (0, 1, 1, 1), (1, 0, 1, 1)))
    z, w, mask = torch.randn(2, 9, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64), ragged(2, 9)
    paper, anchored = (pair_mix(complex_product, z, w, mask, (1, 2), form=form)[0] for form in ("paper", "anchored"))
    torch.testing.assert_close(anchored, paper, rtol=1e-13, atol=1e-13)


def frames_at_angle(angle: float) -> torch.Tensor:
    """(1, 40, 32) unit vectors, each about `angle` away from a common one; 0: all equal."""
    g = torch.Generator().manual_seed(3)
    base = torch.randn(1, 1, 32, generator=g, dtype=torch.float64)
    z = base / base.norm() + angle * torch.randn(1, 40, 32, generator=g, dtype=torch.float64) / math.sqrt(32)
    return z / z.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("angle", [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-9, 0.0])
@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_thin_pairs(kind, angle):
    f, mask = product_of_kind(kind, 32, 2), torch.ones(1, 40, dtype=torch.bool)
    z, identity = frames_at_angle(angle), torch.eye(f.out_dim, dtype=torch.float64)
    paper, _ = pair_mix(f, z, identity, mask, OFFSETS, form="paper")
    anchored, _ = pair_mix(f, z, identity, mask, OFFSETS)
    assert (anchored - paper).norm(dim=-1).max() < 3e-13
    z32 = z.float()
    exact, _ = pair_mix(f, z32.double(), identity, mask, OFFSETS, form="paper")
    single, _ = pair_mix(f, z32, identity.float(), mask, OFFSETS)
    assert (single.double() - exact).norm(dim=-1).max() < 2e-4  # of a unit feature
    z32.requires_grad_()
    direction = torch.randn(exact.shape)
    direction /= direction.norm(dim=-1, keepdim=True)
    gradient = torch.autograd.grad(pair_mix(f, z32, identity.float(), mask, OFFSETS)[0], z32, direction)[0]
    assert gradient.isfinite().all() and gradient.abs().max() < 3e3


@pytest.mark.parametrize("form", ["paper", "anchored"])
@pytest.mark.parametrize("case", ["constant", "time mask", "zero"])
@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_degenerate_frames(kind, case, form):
    f, mask = product_of_kind(kind, 32, 2), torch.ones(1, 40, dtype=torch.bool)
    z = torch.randn(1, 40, 32)
    if case == "constant":
        z = z[:, :1].expand(-1, 40, -1).clone()
    elif case == "time mask":
        z[:, 10:30] = z[:, 10:11]  # a mask leaves bit-identical neighbours
    else:
        z[:, 10:30] = 0
    z.requires_grad_()
    w = torch.randn(8, f.out_dim) / f.out_dim**0.5
    g, _ = pair_mix(f, z, w, mask, OFFSETS, form=form)
    (gradient,) = torch.autograd.grad(g.sum(), z)
    assert g.isfinite().all() and gradient.isfinite().all()
    if kind == "wedge" and case == "constant":
        assert g.abs().max() < 1e-3  # no plane, no feature: rounding does not become one
    if case == "zero":
        assert (g[:, 10:30] == 0).all()  # every product with a zero vector is zero


@pytest.mark.parametrize("form", ["paper", "anchored"])
def test_padding_is_never_read(form):
    f, mask = PairProduct.wedge(6), ragged(3, 20)
    z, w = torch.randn(3, 20, 6), torch.randn(4, f.out_dim)
    clean, _ = pair_mix(f, z, w, mask, (1, 5), form=form)
    z = torch.where(mask.unsqueeze(-1), z, torch.nan).requires_grad_()
    g, count = pair_mix(f, z, w, mask, (1, 5), form=form)
    assert torch.equal(g[mask], clean[mask]) and (g[~mask] == 0).all() and (count[~mask] == 0).all()
    (gradient,) = torch.autograd.grad(g.sum(), z)
    assert gradient.isfinite().all() and (gradient[~mask] == 0).all()


def test_precision_is_at_least_fp32_whatever_autocast_says():
    f, mask = PairProduct.wedge(8), ragged(2, 12)
    z, w = torch.randn(2, 12, 8), torch.randn(4, f.out_dim)
    plain, _ = pair_mix(f, z, w, mask, (1, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, _ = pair_mix(f, z, w, mask, (1, 2))
    assert cast.dtype == torch.float32 and torch.equal(cast, plain)
    half, _ = pair_mix(f, z.bfloat16(), w.bfloat16(), mask, (1, 2))
    assert half.dtype == torch.float32
    assert pair_mix(f, z.double(), w, mask, (1, 2))[0].dtype == torch.float64


@pytest.mark.parametrize("form", ["paper", "anchored"])
def test_frames_of_another_rank_are_refused(form):
    """Also where no pair is valid, so that no norm is taken."""
    f = PairProduct.wedge(4)
    with pytest.raises(ValueError, match="vectors of 4 numbers, got 6"):
        pair_mix(f, torch.randn(1, 3, 6), torch.randn(5, f.out_dim), ragged(1, 3), (8,), form=form)
