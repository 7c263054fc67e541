"""Bilinear products from signed triplets: the definition (`naive.py`), CPU kernels (`cpu.py`), Triton (`fused.py`), one dispatcher.

`product(table, a, b)` is differentiable (twice), works on any batch shape, keeps bf16 and fp16 storage with fp32 products,
computes complex and integer ones by the definition, and is one opaque operator for torch.compile, so that a model around it
compiles with fullgraph=True.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

import torch

from geomix.algebra.operations import bilinear as dense_bilinear
from geomix.algebra.structure_constants import SignedTriplets
from geomix.kernels.product import cpu, naive
from geomix.kernels.product.sums_of_products import backward_sums, forward_sums

BACKENDS = ("dense", "cpu", "triton")


def product(
    table: SignedTriplets, a: torch.Tensor, b: torch.Tensor, *, components: int = -1, backend: str | None = None
) -> torch.Tensor:
    """out[k] = sum of sign * a[i] * b[j] over the triplets, for every batch entry.

    Arguments: a (..., left) and b (..., right) of the same dtype, leading axes broadcast -> (..., out); with components=0 the
    components come first, (left, ...) and (right, ...) -> (out, ...), the layout in which a CPU reaches the memory floor.
    `backend`: None picks Triton on CUDA, compiled code on a CPU, else the dense einsum; all are for floating dtypes, others
    (complex, integer) take the definition. Tensors without memory (meta, fake) take the opaque operator, transformed ones
    (torch.func) the einsum.
    Raises ValueError for a wrong number of components, for an unknown backend, for operands on two devices and for a backend that
    is told to compute where the operands are not.
    """
    if components not in (0, -1):
        raise ValueError(f"components is {components}; multivector components are the first (0) or the last (-1) axis.")
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} of a product is unknown; choose one of {', '.join(BACKENDS)}.")
    if a.shape[components] != table.left or b.shape[components] != table.right:
        raise ValueError(
            f"this product takes {table.left} and {table.right} components, got {a.shape[components]} and "
            f"{b.shape[components]}."
        )
    if a.device != b.device:
        raise ValueError(f"the operands of a product lie on {a.device} and {b.device}; move one to the other's device.")
    if a.dtype != b.dtype:
        dtype = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(dtype), b.to(dtype)
    batch = None
    if components == -1:
        batch = a.shape[:-1] if a.shape[:-1] == b.shape[:-1] else torch.broadcast_shapes(a.shape[:-1], b.shape[:-1])
        a, b = (x.expand(*batch, -1).reshape(-1, x.shape[-1]).t() for x in (a, b))
    elif a.dim() != 2 or a.shape[1:] != b.shape[1:]:
        batch = torch.broadcast_shapes(a.shape[1:], b.shape[1:])
        a, b = (x.movedim(0, -1).expand(*batch, -1).movedim(-1, 0).reshape(x.shape[0], -1) for x in (a, b))
    if not a.dtype.is_floating_point:
        out = naive.bilinear(table, a, b)
    elif torch.compiler.is_compiling() or _without_memory(a) or _without_memory(b):
        out = torch.ops.geomix.bilinear(a, b, _register(table), backend or "")
    elif torch._C._functorch.is_functorch_wrapped_tensor(a) or torch._C._functorch.is_functorch_wrapped_tensor(b):
        out = _forward(table, a, b, "dense")
    elif torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        out = _Bilinear.apply(table, a, b, backend or "")
    else:
        out = _forward(table, a, b, backend or "")
    if components == -1:
        return out.t().reshape(*batch, table.out)
    return out if batch is None else out.reshape(table.out, *batch)


@lru_cache(maxsize=4)
def _have(module: str) -> bool:
    return find_spec(module) is not None


def _without_memory(x: torch.Tensor) -> bool:
    """A tensor of a fake mode, or another subclass that computes in its own way: the operator below is for it to take apart."""
    return type(x) not in (torch.Tensor, torch.nn.Parameter)


def _backend(x: torch.Tensor, asked: str) -> str:
    if not asked:
        able = {"cuda": "triton" if _have("triton") else "dense", "cpu": "cpu" if _have("llvmlite") else "dense"}
        return able.get(x.device.type, "dense")
    if asked == "cpu" and x.device.type != "cpu":
        raise ValueError(f"backend 'cpu' of a product takes tensors in the CPU's memory, got one on {x.device}.")
    return asked  # Triton checks its own


def _forward(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor, asked: str) -> torch.Tensor:
    backend = _backend(a, asked)
    if backend == "triton":
        from geomix.kernels.product import fused

        return fused.forward(table, a, b)
    wide = a.dtype if a.dtype in cpu.LANES else torch.float32
    if backend == "cpu":
        (out,) = cpu.run((forward_sums, table), (a.to(wide), b.to(wide)))
    else:
        out = dense_bilinear(table, a.t().to(wide), b.t().to(wide)).t()
    return out.to(a.dtype)


def _backward(table: SignedTriplets, a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor, asked: str):
    backend = _backend(a, asked)
    if backend == "triton":
        from geomix.kernels.product import fused

        return fused.backward(table, a, b, grad)
    if backend == "cpu":
        wide = a.dtype if a.dtype in cpu.LANES else torch.float32
        da, db = cpu.run((backward_sums, table), (a.to(wide), b.to(wide), grad.to(wide)))
        return da.to(a.dtype), db.to(b.dtype)
    return _forward(table.gradient_left(), grad, b, asked), _forward(table.gradient_right(), a, grad, asked)


class _Bilinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, a, b, asked):
        ctx.table, ctx.asked = table, asked
        ctx.save_for_backward(a, b)
        return _forward(table, a, b, asked)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        table, asked = ctx.table, ctx.asked
        left, right = ctx.needs_input_grad[1:3]
        if left and right and not torch.is_grad_enabled():
            return None, *_backward(table, a, b, grad, asked), None
        # one operand only, or a backward pass that is itself differentiated: the gradients are bilinear maps too
        da = _Bilinear.apply(table.gradient_left(), grad, b, asked) if left else None
        db = _Bilinear.apply(table.gradient_right(), a, grad, asked) if right else None
        return None, da, db, None


# -- the same as an opaque operator for torch.compile; tables travel by name --------------------------------------------------

_TABLES: dict[str, SignedTriplets] = {}


def _register(table: SignedTriplets) -> str:
    _TABLES[table.key] = table
    return table.key


# what torch.compiler.assume_constant_result does, without importing the compiler: over a second in every process
_register._dynamo_marked_constant = True


@torch.library.custom_op("geomix::bilinear", mutates_args=())
def _bilinear_op(a: torch.Tensor, b: torch.Tensor, table: str, backend: str) -> torch.Tensor:
    return _forward(_TABLES[table], a, b, backend).contiguous()


@_bilinear_op.register_fake
def _(a, b, table, backend):
    return a.new_empty(_TABLES[table].out, a.shape[1])


@torch.library.custom_op("geomix::bilinear_backward", mutates_args=())
def _bilinear_backward_op(
    a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor, table: str, backend: str
) -> tuple[torch.Tensor, torch.Tensor]:
    da, db = _backward(_TABLES[table], a, b, grad, backend)
    return da.contiguous(), db.contiguous()


@_bilinear_backward_op.register_fake
def _(a, b, grad, table, backend):
    return a.new_empty(a.shape), b.new_empty(b.shape)


def _setup_context(ctx, inputs, output):
    a, b, ctx.table, ctx.asked = inputs
    ctx.save_for_backward(a, b)


def _op_backward(ctx, grad):
    return *torch.ops.geomix.bilinear_backward(*ctx.saved_tensors, grad, ctx.table, ctx.asked), None, None


_bilinear_op.register_autograd(_op_backward, setup_context=_setup_context)
