"""Triton kernels for bilinear maps, printed from the table: forward, and one backward that writes both gradients.

One program instance handles BLOCK batch entries and holds every component of them in registers, so that each number crosses
memory once; there are no atomics (results are bitwise reproducible) and the batch size and row strides are plain run-time
arguments that are never specialised (one compilation for all batches). Storage may be bf16, fp16 or fp32; products and sums
are fp32. For large tables (more than MAX_LIVE numbers per entry) the backward pass is two kernels, which re-read the inputs
instead of spilling registers.
"""

from __future__ import annotations

import linecache
import sys
import threading
import types
from functools import lru_cache

import torch

from geomix.kernels.launch import check_memory, on_device_of
from geomix.kernels.product.sums_of_products import SumsOfProducts, backward_sums, forward_sums

BLOCK = 128
MAX_LIVE = 224  # components held per batch entry; a thread has 255 registers


def triton_source(sums: SumsOfProducts) -> str:
    """Text of a Python module with one Triton kernel named `kernel`.

    Its arguments: pointers (inputs, outputs), row strides of the same, n, then LANE_x = distance between batch entries of each
    tensor (1 for component-major, the number of components for component-last; 0 for a broadcast operand) and BLOCK.
    """
    tensors = [*sums.inputs, *sums.outputs]
    run_time = [f"stride_{x}" for x in tensors] + ["n"]
    constants = [f"LANE_{x}: tl.constexpr" for x in tensors] + ["BLOCK: tl.constexpr"]
    lines = [
        "import triton",
        "import triton.language as tl",
        "",
        "",
        f"@triton.jit(do_not_specialize={run_time!r}, do_not_specialize_on_alignment={tensors!r})",
        f"def kernel({', '.join(tensors + run_time + constants)}):",
        "    t = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    real = t < n",
    ]
    for x in tensors:
        lines.append(f"    {x} += t * LANE_{x}")
        # a component times its stride passes 2^31 from 69 million products of Cl(5) on
        lines.append(f"    wide_{x} = tl.zeros((), tl.int64) + stride_{x}")
    for x, size in sums.inputs.items():
        for c in range(size):
            lines.append(f"    {x}{c} = tl.load({x} + {c} * wide_{x}, mask=real, other=0.0).to(ACCUMULATOR)")
    for x, components in sums.outputs.items():
        for c, terms in enumerate(components):
            value = "".join(f" {'+' if s > 0 else '-'} {u}{i} * {v}{j}" for s, (u, i), (v, j) in terms)
            value = value.removeprefix(" + ").strip() or "tl.zeros((BLOCK,), ACCUMULATOR)"
            lines.append(f"    tl.store({x} + {c} * wide_{x}, ({value}).to({x}.dtype.element_ty), mask=real)")
    return "\n".join(lines) + "\n"


_lock = threading.Lock()


def compile_sums(maker, table, double: bool = False):
    """The Triton kernel of sums of products, and the sums; `double` accumulates in fp64 (for fp64 tensors). For any thread.

    Triton reads a kernel's source by the name of its file. The text is kept where Python looks lines up, and in no file that could
    be absent, damaged or of another version.
    """
    with _lock:
        return _compile(maker, table, double)


@lru_cache(maxsize=512)
def _compile(maker, table, double: bool):
    sums = maker(table)
    source = triton_source(sums).replace("ACCUMULATOR", "tl.float64" if double else "tl.float32")
    name = f"geomix_generated_{sums.name}_{'f64' if double else 'f32'}"
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, file, "exec"), module.__dict__)
    return module.kernel, sums


def launch(maker, table, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]) -> None:
    """Runs sums of products on (components, N) tensors with any strides, on the device that holds them.

    Raises ValueError for tensors that are no memory of one GPU (or, interpreted, of the CPU).
    """
    inputs = {name: x.resolve_neg() for name, x in inputs.items()}
    tensors = {**inputs, **outputs}
    check_memory("the Triton product", *tensors.values())
    kernel, _ = compile_sums(maker, table, double=any(x.dtype == torch.float64 for x in inputs.values()))
    n = next(iter(inputs.values())).shape[1]
    if n == 0:
        return
    strides = {f"stride_{name}": x.stride(0) for name, x in tensors.items()}
    lanes = {f"LANE_{name}": x.stride(1) for name, x in tensors.items()}
    with on_device_of(next(iter(tensors.values()))):
        kernel[(-(-n // BLOCK),)](**tensors, **strides, n=n, **lanes, BLOCK=BLOCK, num_warps=4)


def empty_like_layout(like: torch.Tensor, components: int) -> torch.Tensor:
    """An empty (components, N) tensor stored as `like` is: by component, or by batch entry."""
    n = like.shape[1]
    by_entry = like.stride(0) == 1 and like.shape[0] > 1
    shape = (n, components) if by_entry else (components, n)
    out = torch.empty(shape, dtype=like.dtype, device=like.device)
    return out.t() if by_entry else out


def forward(table, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """out (out, N) of a (left, N) and b (right, N), same dtype."""
    out = empty_like_layout(a, table.out)
    launch(forward_sums, table, {"a": a, "b": b}, {"out": out})
    return out


def backward(table, a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(da, db), each stored as its operand is."""
    if 2 * (table.left + table.right) + table.out > MAX_LIVE:
        return forward(table.gradient_left(), grad, b), forward(table.gradient_right(), a, grad)
    da, db = empty_like_layout(a, table.left), empty_like_layout(b, table.right)
    launch(backward_sums, table, {"a": a, "b": b, "g": grad}, {"da": da, "db": db})
    return da, db
