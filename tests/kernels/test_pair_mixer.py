import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from geomix.algebra.pair_product import PairProduct, product_of_kind
from geomix.kernels.pair_mixer import pair_mixer, tiling
from geomix.mixers import Frames, PairMixer
from tests.kernels import shared_memory

HERE = Path(__file__).parent
ATOMIC = re.compile(r"^\s*(@\S+\s+)?(atom|red)\.", re.MULTILINE)  # an atomic instruction in PTX


def arguments(kind="wedge", batch=2, frames=11, width=12, rank=6, dtype=torch.float32):
    f = product_of_kind(kind, rank, 0)
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, frames, width), (batch, frames, rank), (width, f.out_dim), (width,), (width, 2 * width), (width,)]
    tensors = [torch.randn(s, generator=generator).to(dtype) for s in shapes]
    return f, *tensors, torch.ones(batch, frames, dtype=torch.bool), (1, 2)


@pytest.mark.parametrize("blend", [False, True])
@pytest.mark.parametrize("empty", ["zero", "bias"])
def test_definition_is_the_mixer_module(blend, empty):
    """The functional form, from a PairMixer's own parameters, gives the module's output."""
    torch.manual_seed(0)
    mixer = PairMixer(16, kind="geometric", rank=5, offsets=(1, 3), blend=blend, empty=empty)
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
    with pytest.raises(ValueError, match="no float64"):
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


def test_tensors_that_the_kernels_cannot_read_are_refused():
    pytest.importorskip("triton")
    if shared_memory.interpreted():
        pytest.skip("TRITON_INTERPRET is set: the CPU's memory is what the kernels read")
    for make in (lambda x: x, lambda x: x.to("meta")):
        given = [make(x) if isinstance(x, torch.Tensor) else x for x in arguments(rank=8)]
        with pytest.raises(ValueError, match="takes plain tensors on a CUDA device, got Tensor on"):
            pair_mixer(*given, backend="fused")


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
    assert len(interpreted["rows"]) >= 12
    for row in interpreted["rows"]:
        assert row["errors"]["y"] < 2e-5, row
        assert max(row["errors"].values()) < 5e-4, row
        assert row["repeatable"], row


def test_fused_form_multiplies_in_half_precision_under_autocast(interpreted):
    """Inputs, features and sums stay fp32; operands of the matrix products are fp16, so errors are a few 2^-11."""
    assert set(interpreted["half"]) == {"y", "u", "project", "project_bias", "gate", "gate_bias"}
    assert all(2e-6 < error < 4e-3 for error in interpreted["half"].values()), interpreted["half"]


# what the configurations reach (256 x 32), and what was chosen and would not have launched: KB of shared memory at full tiles
SHAPES = [
    ("study", 256, 32, "bf16", "bf16"),
    ("study under autocast", 256, 32, "bf16", "fp32"),
    ("168 KB backward", 256, 32, "fp32", "fp32"),
    ("328 KB backward", 512, 32, "fp32", "fp32"),
    ("208 KB table gradient", 256, 128, "bf16", "bf16"),
]


@pytest.mark.parametrize("limit_kb,capability", [(163, 80), (227, 90)])
@pytest.mark.parametrize("case,width,rank,operand,stored", SHAPES, ids=[s[0] for s in SHAPES])
def test_chosen_tiles_fit_the_shared_memory_of_a100_and_h100(case, width, rank, operand, stored, limit_kb, capability):
    """Compiled: the allocation is within the bound that chose the tiles, and the bound within the GPU's limit."""
    pytest.importorskip("triton")
    if shared_memory.interpreted():
        pytest.skip("TRITON_INTERPRET is set: nothing is compiled")
    for kernel in tiling.KERNELS:
        chosen = tiling.tilings(kernel, rank, width, *shared_memory.sizes(operand, stored), limit_kb * 1024)[0]
        allocated = shared_memory.allocated(kernel, chosen, rank, width, operand, stored, capability)
        bound = tiling.shared_bytes(kernel, chosen, rank, width, *shared_memory.sizes(operand, stored))
        assert allocated <= bound <= limit_kb * 1024


@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_to_machine_code_with_tensor_cores_and_no_atomics(capability):
    pytest.importorskip("triton")
    if shared_memory.interpreted():
        pytest.skip("TRITON_INTERPRET is set: nothing is compiled")
    for kernel in tiling.KERNELS:
        compiled = shared_memory.compiled(kernel, tiling.TILINGS[0], 32, 256, "bf16", "bf16", capability)
        ptx = compiled.asm["ptx"]
        assert f".target sm_{capability}" in ptx and "mma" in ptx and not ATOMIC.search(ptx)
        assert compiled.metadata.shared == shared_memory.allocated(
            kernel, tiling.TILINGS[0], 32, 256, "bf16", "bf16", capability
        )


def test_the_studys_tiles_are_as_large_as_they_were():
    """bf16 at 256 x 32 needs nothing smaller than 32 frames and three stages, on either GPU."""
    for limit in (163, 227):
        for kernel in tiling.KERNELS:
            assert tiling.tilings(kernel, 32, 256, 2, 2, limit * 1024)[0] == tiling.TILINGS[0]


@pytest.mark.parametrize("width,rank,size", [(512, 64, 4), (512, 128, 2), (256, 128, 4), (64, 256, 2)])
def test_the_definition_runs_where_no_tile_fits(width, rank, size):
    assert not tiling.fits(rank, width, size, size, 227 * 1024)
    f, *tensors, mask, offsets = arguments(width=width, rank=rank, frames=3)
    tensors = [t.to(torch.float32 if size == 4 else torch.bfloat16) for t in tensors]
    assert pair_mixer(f, *tensors, mask, offsets).shape == (2, 3, width)
    with pytest.raises(ValueError, match="shared memory"):
        pair_mixer(f, *tensors, mask, offsets, backend="fused")


def test_smaller_tiles_are_taken_when_a_launch_runs_out_of_shared_memory(monkeypatch):
    """Another Triton may allocate more than the bound says."""
    pytest.importorskip("triton")
    from triton.runtime.errors import OutOfResources

    fused = pytest.importorskip("geomix.kernels.pair_mixer.fused")
    tried = []

    def launch(tiles):
        tried.append(tiles)
        if len(tried) < 3:
            raise OutOfResources(200, 163, "shared memory")

    fused._launch("forward", launch, torch.empty(4, 256), torch.empty(4, 32), torch.empty(16, 32, 256))
    assert tried == list(tiling.TILINGS[:3])


def test_strided_and_expanded_arguments_count_as_their_values(interpreted):
    """A column of a matrix or one number expanded as a bias; transposed weights and frames: same values, same gradients."""
    assert len(interpreted["strided"]) >= 3
    assert all(error == 0 for case in interpreted["strided"].values() for error in case.values()), interpreted[
        "strided"
    ]


def test_nan_in_a_frame_reaches_the_frames_that_read_it_and_no_other(interpreted):
    assert interpreted["nan"]["fused"] == interpreted["nan"]["naive"] and 0 < sum(interpreted["nan"]["naive"]) < 12


def test_fused_form_compiles_fullgraph(interpreted):
    assert set(interpreted["compiled"]) == {"wedge", "signed", "geometric", "symmetric r5"}
    assert all(error < 1e-5 for error in interpreted["compiled"].values()), interpreted["compiled"]


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("kind,rank", [("wedge", 32), ("signed", 32), ("signed", tiling.MAX_RANK)])
def test_anchor_kernels_fit_gpus_without_one(capability, kind, rank):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    fused = pytest.importorskip("geomix.kernels.pair_mixer.fused_anchors")
    if not isinstance(fused._forward_kernel, triton.JITFunction):
        pytest.skip("TRITON_INTERPRET is set: nothing is compiled")
    constants = {
        "R": rank, "BLOCK_R": tiling.block(rank), "OFFSETS": 6, "BLOCK": fused.frames_of_a_program(rank), "TWO_SIDED": True,
        "MIN_SINE": 1e-3, "EPS": 1e-6, "KIND": fused.norm_kind(product_of_kind(kind, rank, 0)),
    }  # fmt: skip
    types = {"mask": "*i1", "offsets": "*i32", "count": "*i64", "frames": "i32", "length": "i32"}
    for kernel in (fused._forward_kernel, fused._backward_kernel):
        signature = {n: "constexpr" if n in constants else types.get(n, "*fp32") for n in kernel.arg_names}
        source = ASTSource(kernel, signature, constexprs=constants)
        assert shared_memory.shared_of(source, capability, 4, 3) <= 1024 * tiling.LIMITS[capability // 10, 0]
        if rank <= 32:  # ptxas takes half a minute at rank 128
            target = GPUTarget("cuda", capability, 32)
            compiled = triton.compile(source, target=target, options={"num_warps": 4})
            assert f".target sm_{capability}" in compiled.asm["ptx"]
            assert not ATOMIC.search(compiled.asm["ptx"])


def test_norm_kinds_are_recognised_from_the_table():
    fused = pytest.importorskip("geomix.kernels.pair_mixer.fused_anchors")
    kinds = lambda r: [fused.norm_kind(product_of_kind(k, r, 0)) for k in ("wedge", "symmetric", "signed", "geometric")]
    assert kinds(8) == [0, 1, 2, 3]
    assert kinds(7) == [None, None, None, 3]  # there the norm is the sum of squares, which the kernels do not have
    assert fused.norm_kind(PairProduct.clifford(3)) is None
