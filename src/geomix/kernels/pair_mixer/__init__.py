"""The whole pair mixer as one operation: the definition (`naive.py`), its Triton form and the choice between them.

`fused_anchors.py` averages the normalised partners of each frame, `fused.py` does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from geomix.algebra.pair_product import PairProduct, has_pair_terms
from geomix.algebra.sign_dial import SignDial
from geomix.kernels.autocast import autocast_dtype, without_autocast
from geomix.kernels.pair_features.anchored import anchors
from geomix.kernels.pair_features.pairing import Pairing
from geomix.kernels.pair_mixer import naive
from geomix.kernels.pair_mixer.tiling import fits, shared_limit

MAX_WIDTH = 512  # the fused form keeps a row of g in registers


def pair_mixer(
    f: PairProduct | SignDial,
    u: Tensor,
    z: Tensor,
    project: Tensor,
    project_bias: Tensor,
    gate: Tensor | None,
    gate_bias: Tensor | None,
    mask: Tensor,
    offsets: Sequence[int],
    *,
    gating: str = "article",
    blend: bool = False,
    empty: str = "zero",
    dropout: float = 0.0,
    form: str = "anchored",
    backend: str | None = None,
    **pairing: Any,
) -> Tensor:
    """Value and gradients of `naive.pair_mixer`, argument for argument.

    `backend` None takes the fused form on CUDA where it is able to (`unfused`), else the definition, which also runs where no tile
    of the fused form fits the device's shared memory (`tiling.py`); "naive" and "fused" force one. Under autocast the fused form
    multiplies in autocast's type; pair features are fp32 in both.
    """
    dtype = autocast_dtype(u) or u.dtype
    pairs = Pairing(tuple(offsets), **pairing)
    why = unfused(f, u, pairs, gating, dropout, form, dtype)
    if backend is None:
        backend = "naive" if why or u.device.type != "cuda" or not _plain(u) or not _have_triton() else "fused"
    if backend not in ("naive", "fused"):
        raise ValueError(f"backend {backend!r} of a pair mixer is unknown; choose naive or fused.")
    if backend == "naive":
        return naive.pair_mixer(
            f, u, z, project, project_bias, gate, gate_bias, mask, offsets, gating=gating, blend=blend, empty=empty,
            dropout=dropout, form=form, **pairing,
        )  # fmt: skip
    if why:
        raise ValueError(f"the fused pair mixer takes {why}.")
    f.check(z)
    return _fused(f, u, z, (project, project_bias, gate, gate_bias), mask, pairs, blend, empty, dtype)


def unfused(
    f: PairProduct | SignDial,
    u: Tensor,
    pairing: Pairing,
    gating: str,
    dropout: float,
    form: str,
    dtype: torch.dtype,
) -> str | None:
    """What the fused form takes and is not given; None where it runs.

    It covers every kind with fixed signs, `blend`, `empty`, a gate bias, both pools and features that are not normalised.
    """
    if form != "anchored" or isinstance(f, SignDial) or not has_pair_terms(f):
        return "the anchored form of pair products with fixed signs"
    if gating != "article" or pairing.weights != "shared" or dropout:
        return "the article's gate, one projection for all pairs and no dropout of the feature"
    if 0 in pairing.side_weights or not pairing.offsets:
        return "pairs with the past"
    if u.shape[-1] > MAX_WIDTH or u.dtype == torch.float64:
        return "width 512 at most and no float64"
    if not fits(f.in_dim, u.shape[-1], dtype.itemsize, u.dtype.itemsize, shared_limit(u.device)):
        return "a rank whose tiles fit the device's shared memory"
    return None


def _plain(u: Tensor) -> bool:
    """No tensor of torch.func, of a fake mode or another subclass (while compiling, what stands for one counts as plain)."""
    if torch.compiler.is_compiling():
        return True
    return type(u) in (Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(u)


def _fused(f, u, z, weights, mask, pairing: Pairing, blend, empty, dtype) -> Tensor:
    from geomix.kernels.pair_mixer.fused import fused_pair_mixer

    with without_autocast(u):
        past, future, z, count = _anchors(f, z.float(), mask, pairing)
        weight = torch.ones_like(count) if empty == "bias" else count > 0
        rows = [None if x is None else x.reshape(-1, x.shape[-1]) for x in (u, past, future, z)]
        y = fused_pair_mixer(f, *rows, weight.reshape(-1), *weights, blend, dtype)
    return y.view(u.shape)


def _anchors(f, z, mask, pairing: Pairing) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Partners of the past and of the future, z and the number of pairs; the Triton form has closed norms and the mean alone."""
    from geomix.kernels.pair_mixer.fused_anchors import fused_anchors, norm_kind

    if norm_kind(f) is None or pairing != Pairing(
        pairing.offsets, pairing.two_sided, min_sine=pairing.min_sine, eps=pairing.eps
    ):
        found = anchors(f, z, mask, pairing)
        return *found.by_map[0], found.z, found.count
    return fused_anchors(f, z, mask, pairing.offsets, pairing.two_sided, pairing.min_sine, pairing.eps)


@lru_cache(maxsize=1)
def _have_triton() -> bool:
    return find_spec("triton") is not None
