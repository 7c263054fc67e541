"""Which tensors a product's backends take: plain memory of their device, whatever thread, process or mode calls."""

import multiprocessing
import os

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from geomix.algebra import Algebra
from geomix.kernels.product import cpu, naive, product
from geomix.kernels.product.sums_of_products import forward_sums

CL3 = Algebra(3)
TABLE = CL3.product()


@pytest.mark.parametrize("backend", [None, "dense"])
def test_a_tensor_on_meta_gives_the_shape(backend):
    a = torch.empty(4, 8, device="meta", requires_grad=True)
    y = product(TABLE, a, torch.empty(4, 8, device="meta"), backend=backend)
    assert y.device.type == "meta" and y.shape == (4, 8)
    assert torch.autograd.grad(y.sum(), a)[0].shape == (4, 8)


@pytest.mark.parametrize("components", [0, -1])
def test_fake_tensors_stay_fake_forwards_and_backwards(components):
    with FakeTensorMode():
        a, b = torch.empty(8, 8, requires_grad=True), torch.empty(8, 8)
        y = product(TABLE, a, b, components=components)
        (gradient,) = torch.autograd.grad(y.sum(), a)
    assert all(type(x).__name__ == "FakeTensor" and x.shape == (8, 8) for x in (y, gradient))
    x = torch.randn(8, 8)
    torch.testing.assert_close(
        product(TABLE, x, x, components=0), naive.bilinear(TABLE, x, x)
    )  # nothing fake was left in a cache


def test_functional_transforms_take_the_definition():
    a, b = torch.randn(2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(torch.vmap(lambda x, y: product(TABLE, x, y))(a, b), product(TABLE, a, b))
    by_a = torch.func.jacrev(lambda x: product(TABLE, x, b[0]))(a[0])
    torch.testing.assert_close(by_a, torch.func.jacfwd(lambda x: product(TABLE, x, b[0]))(a[0]))
    torch.testing.assert_close(by_a @ a[0], product(TABLE, a[0], b[0]))


@pytest.mark.parametrize(
    "make,named",
    [
        (lambda x: x.to("meta"), "on meta"),
        (lambda x: x.half(), "torch.float16"),
        (lambda x: x[:, :5], r"\(8, 40\) numbers, got \(8, 5\)"),
        (lambda x: x[:4], r"got \(4, 40\)"),
    ],
    ids=["meta", "half", "shorter", "fewer components"],
)
def test_the_cpu_kernels_refuse_what_is_no_memory_of_theirs(make, named):
    a, b = torch.randn(2, 8, 40)
    with pytest.raises(ValueError, match=named):
        cpu.run((forward_sums, TABLE), (a, make(b)))


def test_operands_on_two_devices_and_a_backend_on_another_are_refused():
    a = torch.ones(2, 8)
    with pytest.raises(ValueError, match="lie on cpu and meta"):
        product(TABLE, a, a.to("meta"))
    with pytest.raises(ValueError, match="in the CPU's memory, got one on meta"):
        product(TABLE, a.to("meta"), a.to("meta"), backend="cpu")
    pytest.importorskip("triton")
    with pytest.raises(ValueError, match="takes plain tensors on a CUDA device"):
        product(TABLE, a, a, backend="triton")


@pytest.mark.parametrize("components", [0, -1])
def test_views_with_a_negative_bit_count_as_their_values(components):
    z = torch.randn(8, 8, dtype=torch.complex64)
    turned, b = z.conj().imag, torch.randn(8, 8)
    assert turned.is_neg()
    torch.testing.assert_close(
        product(TABLE, turned, b, components=components), product(TABLE, -z.imag, b, components=components)
    )


def test_results_are_made_on_the_operands_device_whatever_the_default_is():
    a = torch.ones(2, 8)
    with torch.device("meta"):
        assert product(TABLE, a, a).device.type == "cpu"


def test_an_output_of_other_strides_is_refused():
    a = torch.randn(8, 64)
    with pytest.raises(ValueError, match="by component or by entry"):
        cpu.run((forward_sums, TABLE), (a, a), (torch.empty(8, 128)[:, ::2],))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_computes_after_a_threaded_product(threads):
    """The child has the pool's bookkeeping and none of its threads: it hung."""
    a = torch.randn(8, 3 * cpu.THREAD_LANES)
    torch.set_num_threads(threads)  # put back by conftest
    # compared as bytes: torch's own threads do not survive a fork
    expected = product(TABLE, a, a, components=0).numpy().tobytes()
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe()

    def work():
        writer.send(product(TABLE, a, a, components=0).numpy().tobytes() == expected)

    child = context.Process(target=work)
    child.start()
    assert reader.poll(3600) and reader.recv()  # the deadline only ends what hangs
    child.join()
    assert child.exitcode == 0


def test_strides_of_the_triton_kernels_are_64_bit():
    """fp16 Cl(3) from 307 million products on, Cl(5) from 69 million: component x stride passes 2^31."""
    pytest.importorskip("triton")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from geomix.kernels.launch import interpreted
    from geomix.kernels.product import fused

    if interpreted():
        pytest.skip("TRITON_INTERPRET is set: nothing is compiled")
    kernel, program = fused.compile_sums(forward_sums, TABLE)
    tensors = [*program.inputs, *program.outputs]
    signature = {**dict.fromkeys(tensors, "*fp16"), **{f"stride_{x}": "i32" for x in tensors}, "n": "i32"}
    constants = {**{f"LANE_{x}": 1 for x in tensors}, "BLOCK": 128}
    source = ASTSource(
        kernel, {name: signature.get(name, "constexpr") for name in kernel.arg_names}, constexprs=constants
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 4})
    multiplied = [line for line in compiled.asm["ttir"].splitlines() if "arith.muli" in line]
    assert multiplied and all("i64" in line for line in multiplied)
