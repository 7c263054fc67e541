"""The whole pair mixer as one operation: the definition (`naive.py`), its Triton form and the choice between them.

`fused_anchors.py` averages the normalised partners of each frame, `fused.py` does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from geomix.algebra.pair_product import PairProduct, has_pair_terms
from geomix.kernels.autocast import autocast_dtype, without_autocast
from geomix.kernels.pair_features.anchored import anchors
from geomix.kernels.pair_mixer import naive
from geomix.kernels.pair_mixer.tiling import fits, shared_limit

MAX_WIDTH = 512  # the fused form keeps a row of g in registers


def pair_mixer(
    f: PairProduct,
    u: Tensor,
    z: Tensor,
    project: Tensor,
    project_bias: Tensor,
    gate: Tensor,
    gate_bias: Tensor,
    mask: Tensor,
    offsets: Sequence[int],
    *,
    two_sided: bool = True,
    blend: bool = False,
    empty: str = "zero",
    min_sine: float = 1e-3,
    eps: float = 1e-6,
    form: str = "anchored",
    backend: str | None = None,
) -> Tensor:
    """Value and gradients of `naive.pair_mixer`, argument for argument.

    `backend` None takes the fused form on CUDA for the anchored form of a product with `pair_terms` and a width up to 512, else
    the definition, which also runs where no tile of the fused form fits the device's shared memory (`tiling.py`); "naive" and
    "fused" force one. Under autocast the fused form multiplies in autocast's type; pair features
    are fp32 in both.
    """
    dtype = autocast_dtype(u) or u.dtype
    able = form == "anchored" and has_pair_terms(f) and u.shape[-1] <= MAX_WIDTH and u.dtype != torch.float64
    able = able and fits(f.in_dim, u.shape[-1], dtype.itemsize, u.dtype.itemsize, shared_limit(u.device))
    if backend is None:
        backend = "fused" if able and u.device.type == "cuda" and _plain(u) and _have_triton() else "naive"
    if backend not in ("naive", "fused"):
        raise ValueError(f"backend {backend!r} of a pair mixer is unknown; choose naive or fused.")
    if backend == "naive":
        return naive.pair_mixer(
            f, u, z, project, project_bias, gate, gate_bias, mask, offsets, two_sided=two_sided, blend=blend, empty=empty,
            min_sine=min_sine, eps=eps, form=form,
        )  # fmt: skip
    if not able:
        raise ValueError(
            "the fused pair mixer takes the anchored form of pair products, width 512 at most and no float64, of a rank whose "
            "tiles fit the device's shared memory."
        )
    f.check(z)
    weights = (project, project_bias, gate, gate_bias)
    return _fused(f, u, z, weights, mask, tuple(offsets), two_sided, blend, empty, min_sine, eps, dtype)


def _plain(u: Tensor) -> bool:
    """No tensor of torch.func, of a fake mode or another subclass (while compiling, what stands for one counts as plain)."""
    if torch.compiler.is_compiling():
        return True
    return type(u) in (Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(u)


def _fused(f, u, z, weights, mask, offsets, two_sided, blend, empty, min_sine, eps, dtype) -> Tensor:
    from geomix.kernels.pair_mixer.fused import fused_pair_mixer
    from geomix.kernels.pair_mixer.fused_anchors import fused_anchors, norm_kind

    with without_autocast(u):
        take_anchors = anchors if norm_kind(f) is None else fused_anchors
        past, future, z, count = take_anchors(f, z.float(), mask, offsets, two_sided, min_sine, eps)
        weight = torch.ones_like(count) if empty == "bias" else count > 0
        rows = [None if x is None else x.reshape(-1, x.shape[-1]) for x in (u, past, future, z)]
        y = fused_pair_mixer(f, *rows, weight.reshape(-1), *weights, blend, dtype)
    return y.view(u.shape)


@lru_cache(maxsize=1)
def _have_triton() -> bool:
    return find_spec("triton") is not None
