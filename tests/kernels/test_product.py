import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from geomix.algebra import Algebra
from geomix.kernels.product import cpu, fused, naive, product
from geomix.kernels.product.sums_of_products import backward_sums, forward_sums

HERE = Path(__file__).parent
ATOMIC = re.compile(r"^\s*(@\S+\s+)?(atom|red)\.", re.MULTILINE)  # an atomic instruction in PTX
CASES = [(3, 3), (4, 3), (4, 4), (5, 3), (5, 5)]
ALGEBRAS = [*(Algebra.truncated(n, k) for n, k in CASES), Algebra(3, 0, 1), Algebra(1, 3), Algebra(0, 3, 0, (0, 2))]


def operands(algebra, batch, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(algebra.dim, batch, dtype=torch.float64, generator=generator).to(dtype) for _ in range(3)]


def close(ours, truth, tolerance):
    for x, y in zip(ours, truth, strict=True):
        assert x.shape == y.shape
        assert ((x.double() - y).abs() <= tolerance * (1 + y.abs())).all()


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 4e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("batch", [1, 3, 16, 100, 777])
def test_cpu_kernels_equal_the_definition(algebra, dtype, tolerance, batch):
    a, b, grad = operands(algebra, batch, dtype)
    table = algebra.product()
    out = cpu.run((forward_sums, table), (a, b))
    both = cpu.run((backward_sums, table), (a, b, grad))
    wide = [x.double() for x in (a, b, grad)]
    close([*out, *both], [naive.bilinear(table, *wide[:2]), *naive.bilinear_backward(table, *wide)], tolerance)


def test_definition_equals_the_dense_table():
    for algebra in ALGEBRAS:
        a, b, _ = operands(algebra, 5, torch.float64)
        dense = np.einsum("in,jn,ijk->kn", a.numpy(), b.numpy(), algebra.product().dense())
        np.testing.assert_allclose(naive.bilinear(algebra.product(), a, b), dense, atol=1e-13)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_result_does_not_depend_on_threads_or_strides(threads):
    algebra = Algebra.truncated(4, 3)
    a, b, grad = operands(algebra, 3 * cpu.THREAD_LANES + 5)
    expected = [*cpu.run((forward_sums, algebra.product()), (a, b))]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        view = torch.stack((a, a), 2)[..., 1]  # rows that are not contiguous
        assert torch.equal(cpu.run((forward_sums, algebra.product()), (view, b))[0], expected[0])
        slab = torch.cat((a, b))[: algebra.dim]  # rows of a larger tensor
        assert torch.equal(cpu.run((forward_sums, algebra.product()), (slab, b))[0], expected[0])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("backend", ["cpu", "dense"])
@pytest.mark.parametrize("components", [0, -1])
def test_gradients_first_and_second_with_broadcasting(backend, components):
    """Every gradient against finite differences (flash-clifford's own test compared a gradient with itself)."""
    algebra = Algebra(2, 1, 0, (0, 1, 2))
    a = torch.randn(2, 1, algebra.dim, dtype=torch.float64)
    b = torch.randn(3, algebra.dim, dtype=torch.float64)
    if components == 0:
        a, b = a.movedim(-1, 0), b.movedim(-1, 0)
    inputs = (a.requires_grad_(), b.requires_grad_())
    function = lambda x, y: product(algebra.product(), x, y, components=components, backend=backend)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)
    for needed in (0, 1):
        x, y = (v.detach().requires_grad_(i == needed) for i, v in enumerate(inputs))
        assert torch.autograd.gradcheck(function, (x, y))


def test_empty_batches_and_odd_shapes():
    table = Algebra(3).product()
    assert product(table, torch.zeros(0, 8), torch.zeros(0, 8)).shape == (0, 8)
    assert product(table, torch.ones(8), torch.ones(8)).shape == (8,)
    assert product(table, torch.ones(8, 2, 3), torch.ones(8, 3), components=0).shape == (8, 2, 3)


@pytest.mark.parametrize("dtype,ulp", [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_half_precision_storage_has_fp32_products(dtype, ulp):
    """One rounding of the result, whatever the number of terms: sums in bf16 would lose 26 terms' worth."""
    algebra = Algebra.truncated(5, 3)
    a, b, grad = operands(algebra, 100, dtype)
    a.requires_grad_(), b.requires_grad_()
    out = product(algebra.product(), a, b, components=0)
    out.backward(grad)
    assert out.dtype == a.grad.dtype == dtype
    wide = [x.detach().double() for x in (a, b, grad)]
    truth = [naive.bilinear(algebra.product(), *wide[:2]), *naive.bilinear_backward(algebra.product(), *wide)]
    for x, y in zip((out, a.grad, b.grad), truth, strict=True):
        assert ((x.double() - y).abs() <= ulp * y.abs() + 1e-5).all()


@pytest.mark.parametrize("components", [0, -1])
def test_complex_and_integer_operands_are_exact(components):
    """fp32 kernels would drop imaginary parts and round 5001^2."""
    table = Algebra(3).product()
    side = lambda x: x if components else x.t()
    whole = torch.full((3, 8), 5001)
    expected = np.einsum("ni,nj,ijk->nk", whole, whole, table.dense(np.int64))
    np.testing.assert_array_equal(side(product(table, side(whole), side(whole), components=components)), expected)
    a, b = (torch.randn(3, 8, dtype=torch.complex128, requires_grad=True) for _ in range(2))
    ours = side(product(table, side(a), side(b), components=components))
    dense = torch.einsum("ni,nj,ijk->nk", a, b, torch.from_numpy(table.dense()).to(a.dtype))
    torch.testing.assert_close(ours, dense)
    for x, y in zip(*(torch.autograd.grad(z.abs().sum(), (a, b)) for z in (ours, dense)), strict=True):
        torch.testing.assert_close(x, y)


def test_fullgraph_compilation_with_gradients_flowing():
    """cuEquivariance #32 (graph break), OpenEquivariance #170 (compiled operator drops requires_grad)."""
    torch._dynamo.reset()
    algebra = Algebra.truncated(4, 3)
    table, weight = algebra.product(), torch.randn(algebra.dim, requires_grad=True)

    def model(x, y):
        return (product(table, x * weight, y) ** 2).sum()

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for batch in (5, 6, 7):
        x, y = (torch.randn(batch, algebra.dim, requires_grad=True) for _ in range(2))
        expected = torch.autograd.grad(model(x, y), (x, y, weight))
        value = compiled(x, y)
        assert value.requires_grad
        for ours, theirs in zip(torch.autograd.grad(value, (x, y, weight)), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_mistakes_end_in_a_sentence():
    table = Algebra(3).product()
    with pytest.raises(ValueError, match="8 and 8 components, got 4 and 8"):
        product(table, torch.ones(2, 4), torch.ones(2, 8))
    with pytest.raises(ValueError, match="backend 'cuda'"):
        product(table, torch.ones(8), torch.ones(8), backend="cuda")
    with pytest.raises(ValueError, match="components is 1"):
        product(table, torch.ones(8), torch.ones(8), components=1)


COLD_START = """
import torch
from geomix.algebra import Algebra
from geomix.kernels.product import cpu, product
emit, calls = cpu.emit, []
cpu.emit = lambda ir: calls.append(ir) or emit(ir)
a = torch.ones(26, 64, requires_grad=True)
product(Algebra.truncated(5, 3).product(), a, a, components=0).sum().backward()
print(len(calls))
"""


def test_cold_start_needs_no_compiler_and_a_warm_one_compiles_nothing(tmp_path):
    """Cold: IR printed and compiled by llvmlite, forward and backward. Warm: a new process reads the object files."""
    empty = tmp_path / "bin"
    empty.mkdir()
    environment = {
        **os.environ,
        "GEOMIX_CACHE": str(tmp_path / "cache"),
        "PATH": str(empty),
        "CXX": "missing",
        "CC": "missing",
    }
    run = lambda: int(
        subprocess.run(
            [sys.executable, "-c", COLD_START], env=environment, capture_output=True, text=True, check=True
        ).stdout
    )
    assert run() == 2
    assert len(list((tmp_path / "cache" / "cpu").glob("*.o"))) == 2
    assert run() == 0


# -- Triton: through its interpreter (a process of its own), and compiled for GPUs that are not here ---------------------------


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "GEOMIX_CACHE": str(tmp_path_factory.mktemp("cache"))}
    done = subprocess.run(
        [sys.executable, str(HERE / "interpreted_product.py")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_triton_kernels_equal_the_definition(interpreted):
    rows = interpreted["rows"]
    assert len({r["algebra"] for r in rows}) >= 10 and {r["batch"] for r in rows} == {1, 3, 100, 777}
    # bf16 stores are truncated by the interpreter (one unit in the last place), hence 2^-7 there
    limits = {"torch.float32": 6e-6, "torch.float16": 2**-10, "torch.bfloat16": 2**-7}
    assert all(max(r["errors"]) <= limits[r["dtype"]] for r in rows)
    assert all(r["repeatable"] and r["layout_kept"] for r in rows)


def test_triton_through_autograd_split_backward_and_the_atomic_form(interpreted):
    assert interpreted["autograd"] < 2e-4
    assert max(interpreted["split"]) < 6e-6
    assert interpreted["atomic"] < 6e-6


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("maker", [forward_sums, backward_sums])
def test_triton_compiles_for_gpus_without_one(capability, maker):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, program = fused.compile_sums(maker, Algebra.truncated(4, 3).product())
    if not isinstance(kernel, triton.JITFunction):
        pytest.skip("TRITON_INTERPRET is set: nothing is compiled")
    tensors = [*program.inputs, *program.outputs]
    # strides and batch size are run-time integers: one compilation serves every batch
    run_time = {name for name in kernel.arg_names if name.startswith("stride_") or name == "n"}
    assert {p.name for p in kernel.params if p.do_not_specialize} == run_time
    assert "n" not in {p.name for p in kernel.params if p.is_constexpr}
    signature = {**dict.fromkeys(tensors, "*bf16"), **dict.fromkeys(run_time, "i64")}
    constants = {**{f"LANE_{x}": 1 for x in tensors}, "BLOCK": 128}
    signature = {name: signature.get(name, "constexpr") for name in kernel.arg_names}
    compiled = triton.compile(
        ASTSource(kernel, signature, constexprs=constants),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": 4},
    )
    ptx = compiled.asm["ptx"]
    assert f".target sm_{capability}" in ptx
    assert not ATOMIC.search(ptx)
    assert "fma.rn.f32" in ptx  # bf16 storage, fp32 products
    assert len(compiled.asm["cubin"]) > 1000


def test_triton_runs_on_this_gpu():
    if not torch.cuda.is_available():
        pytest.skip(
            "no CUDA device: the kernels ran through the interpreter and were compiled for sm_80 and sm_90 only"
        )
    for algebra in ALGEBRAS:
        for batch in (1, 3, 777, 100_000):
            a, b, grad = (x.cuda() for x in operands(algebra, batch))
            wide = [x.double() for x in (a, b, grad)]
            table = algebra.product()
            ours = [fused.forward(table, a, b), *fused.backward(table, a, b, grad)]
            close(ours, [naive.bilinear(table, *wide[:2]), *naive.bilinear_backward(table, *wide)], 4e-6)
