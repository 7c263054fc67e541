import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from geomix.algebra.pair_product import PairProduct, product_of_kind
from geomix.kernels.pair_mixer import pair_mixer
from geomix.mixers import Frames, PairMixer

HERE = Path(__file__).parent
ATOMIC = re.compile(r"^\s*(@\S+\s+)?(atom|red)\.", re.MULTILINE)  # an atomic instruction in PTX


def arguments(kind="wedge", batch=2, frames=11, width=12, rank=6, dtype=torch.float32):
    f = product_of_kind(kind, rank, 0)
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, frames, width), (batch, frames, rank), (width, f.out_dim), (width,), (width, 2 * width), (width,)]
    tensors = [torch.randn(s, generator=generator).to(dtype) for s in shapes]
    return f, *tensors, torch.ones(batch, frames, dtype=torch.bool), (1, 2)


@pytest.mark.parametrize("gate", ["branch", "blend"])
@pytest.mark.parametrize("empty", ["zero", "bias"])
def test_definition_is_the_mixer_module(gate, empty):
    """The functional form, from a PairMixer's own parameters, gives the module's output."""
    torch.manual_seed(0)
    mixer = PairMixer(16, kind="geometric", rank=5, offsets=(1, 3), gate=gate, empty=empty)
    x, frames = torch.randn(2, 9, 16), Frames.of(torch.tensor([9, 4]), 9)
    ours = pair_mixer(
        mixer.product, x, mixer.reduce(x), mixer.project.weight, mixer.project.bias, mixer.gate.weight, mixer.gate.bias,
        frames.mask, mixer.offsets, two_sided=mixer.two_sided, blend=mixer.blend, empty=empty, backend="naive",
    )  # fmt: skip
    torch.testing.assert_close(ours, mixer(x, frames))


def test_dispatcher_takes_the_fused_form_on_cuda_only():
    assert pair_mixer(*arguments()).shape == (2, 11, 12)  # a CPU takes the definition, without Triton
    with pytest.raises(ValueError, match="backend 'cuda'"):
        pair_mixer(*arguments(), backend="cuda")
    with pytest.raises(ValueError, match="anchored form"):
        pair_mixer(*arguments(dtype=torch.float64), backend="fused")
    if torch.cuda.is_available():
        on_gpu = [x.cuda() if isinstance(x, torch.Tensor) else x for x in arguments()]
        torch.testing.assert_close(pair_mixer(*on_gpu).cpu(), pair_mixer(*arguments()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["wedge", "symmetric", "signed", "geometric"])
@pytest.mark.parametrize("rank", [4, 5, 32])
def test_cyclic_tiles_visit_every_feature_once(kind, rank):
    """r (r - 1) / 2 features in r // 2 tiles: 496 = 15 x 32 + 16, and the tiles' values are the product's, column by column."""
    fused = pytest.importorskip("geomix.kernels.pair_mixer.fused")
    f: PairProduct = product_of_kind(kind, rank, 0)
    tiles = fused.cyclic_tiles(f, torch.device("cpu"))
    a, b = torch.randn(2, rank, dtype=torch.float64)
    features = torch.zeros(f.out_dim, dtype=torch.float64)
    places = torch.zeros(f.out_dim)
    for m, shift in enumerate(tiles.shift.tolist()):
        e = (torch.arange(rank) + shift) % rank
        values = (a * b[e] + tiles.sign[m] * a[e] * b) * tiles.factor[m]
        features.index_add_(0, tiles.feature[m], values)
        places.index_add_(0, tiles.feature[m], (tiles.factor[m] != 0).float())
    torch.testing.assert_close(features, f(a, b))
    if kind == "geometric":
        assert places[0] == rank  # the dot product is a tile of its own
        places = places[1:]
    assert (places == 1).all()


@pytest.fixture(scope="module")
def interpreted():
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, str(HERE / "interpreted_pair_mixer.py")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_fused_value_and_all_gradients_equal_the_definition(interpreted):
    """Triton interpreter, fp32, against the paper's form in fp64; thin pairs make z's gradient the least accurate."""
    assert len(interpreted["rows"]) >= 8
    for row in interpreted["rows"]:
        assert row["errors"]["y"] < 2e-5, row
        assert max(row["errors"].values()) < 5e-4, row
        assert row["repeatable"], row


def test_fused_form_multiplies_in_half_precision_under_autocast(interpreted):
    """Inputs, features and sums stay fp32; operands of the matrix products are fp16, so errors are a few 2^-11."""
    assert set(interpreted["half"]) == {"y", "u", "project", "project_bias", "gate", "gate_bias"}
    assert all(2e-6 < error < 4e-3 for error in interpreted["half"].values()), interpreted["half"]


@pytest.mark.parametrize("capability,shared_limit", [(80, 163 * 1024), (90, 227 * 1024)])
def test_fused_kernels_compile_for_gpus_without_one(capability, shared_limit):
    """At the study's size (width 256, r 32, bf16 products) each kernel fits the shared memory of an A100 and an H100."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    fused = pytest.importorskip("geomix.kernels.pair_mixer.fused")
    if not isinstance(fused._forward_kernel, triton.JITFunction):
        pytest.skip("TRITON_INTERPRET is set: nothing is compiled")
    tiles = fused.cyclic_tiles(product_of_kind("wedge", 32), torch.device("cpu"))
    constants = fused._constants(torch.empty(1, 32), 256, tiles, torch.empty(1), False, torch.bfloat16)
    warps = constants.pop("num_warps")
    low = {"table", "gate", "g", "alpha", "d_logit", "d_g", "u", "y", "grad", "d_u"}
    for kernel in (fused._forward_kernel, fused._backward_kernel, fused._table_gradient_kernel):
        signature = {}
        for name in kernel.arg_names:
            if name in constants:
                signature[name] = "constexpr"
            elif name in ("frames", "steps"):
                signature[name] = "i32"
            else:
                signature[name] = "*i32" if name == "shift" else "*bf16" if name in low else "*fp32"
        used = {k: v for k, v in constants.items() if k in kernel.arg_names}
        compiled = triton.compile(
            ASTSource(kernel, signature, constexprs=used),
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": warps},
        )
        ptx = compiled.asm["ptx"]
        assert f".target sm_{capability}" in ptx
        assert "mma" in ptx and not ATOMIC.search(ptx)
        assert compiled.metadata.shared <= shared_limit


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("kind", ["wedge", "signed"])
def test_anchor_kernels_compile_for_gpus_without_one(capability, kind):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    fused = pytest.importorskip("geomix.kernels.pair_mixer.fused_anchors")
    if not isinstance(fused._forward_kernel, triton.JITFunction):
        pytest.skip("TRITON_INTERPRET is set: nothing is compiled")
    constants = {
        "R": 32, "BLOCK_R": 32, "OFFSETS": 6, "BLOCK": fused.FRAMES, "TWO_SIDED": True, "MIN_SINE": 1e-3, "EPS": 1e-6,
        "KIND": fused.norm_kind(product_of_kind(kind, 32, 0)),
    }  # fmt: skip
    types = {"mask": "*i1", "offsets": "*i32", "count": "*i64", "frames": "i32", "length": "i32"}
    for kernel in (fused._forward_kernel, fused._backward_kernel):
        signature = {n: "constexpr" if n in constants else types.get(n, "*fp32") for n in kernel.arg_names}
        compiled = triton.compile(
            ASTSource(kernel, signature, constexprs=constants),
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": 4},
        )
        assert f".target sm_{capability}" in compiled.asm["ptx"]
        assert not ATOMIC.search(compiled.asm["ptx"])


def test_norm_kinds_are_recognised_from_the_table():
    fused = pytest.importorskip("geomix.kernels.pair_mixer.fused_anchors")
    kinds = [fused.norm_kind(product_of_kind(k, 5, 0)) for k in ("wedge", "symmetric", "signed", "geometric")]
    assert kinds == [0, 1, 2, 3]
    assert fused.norm_kind(PairProduct.clifford(3)) is None
