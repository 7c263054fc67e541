"""Run by test_product.py in a process of its own with TRITON_INTERPRET=1: errors of the Triton kernels, as JSON on stdout."""

import json
import os

import torch

from geomix.algebra import Algebra
from geomix.benchmarks import reference_forms
from geomix.kernels.product import fused, naive, product

CASES = [
    Algebra.truncated(3, 3), Algebra.truncated(4, 3), Algebra.truncated(4, 4), Algebra.truncated(5, 3),
    Algebra.truncated(3, 2), Algebra(3, 0, 1, (0, 1, 2, 3)), Algebra(1, 3), Algebra(3, 0, 1), Algebra(0, 3),
    Algebra(2, 1, 0, (0, 2)), Algebra(4, 1, 0, (0, 1, 2)),
]  # fmt: skip
BATCHES = (1, 3, 100, 777)


def error(ours, reference) -> float:
    return ((ours.double() - reference).abs() / (1 + reference.abs())).max().item()


def operand(components, batch, layout):
    if layout == "component-major":
        return torch.randn(components, batch)
    return torch.randn(batch, components).t()


def main():
    assert os.environ.get("TRITON_INTERPRET") == "1"
    torch.manual_seed(0)
    rows = []
    for algebra in CASES:
        table = algebra.product()
        for batch in BATCHES:
            for layout in ("component-major", "component-last") if batch == 100 else ("component-major",):
                for dtype in (torch.float32, torch.float16, torch.bfloat16) if batch == 100 else (torch.float32,):
                    a, b, grad = (operand(algebra.dim, batch, layout).to(dtype) for _ in range(3))
                    wide = [x.double() for x in (a, b, grad)]
                    ours = [fused.forward(table, a, b), *fused.backward(table, a, b, grad)]
                    again = [fused.forward(table, a, b), *fused.backward(table, a, b, grad)]
                    truth = [naive.bilinear(table, *wide[:2]), *naive.bilinear_backward(table, *wide)]
                    rows.append(
                        {
                            "algebra": str(algebra),
                            "batch": batch,
                            "layout": layout,
                            "dtype": str(dtype),
                            "errors": [error(x, y) for x, y in zip(ours, truth, strict=True)],
                            "repeatable": all(torch.equal(x, y) for x, y in zip(ours, again, strict=True)),
                            "layout_kept": batch == 1
                            or all(x.stride(0) == 1 for x in ours) == (layout == "component-last"),
                        }  # fmt: skip
                    )
    # the whole path through autograd, broadcast operands included
    algebra = Algebra.truncated(4, 3)
    a = torch.randn(5, 1, algebra.dim, requires_grad=True)
    b = torch.randn(7, algebra.dim, requires_grad=True)
    results = []
    for backend in ("triton", "dense"):
        out = product(algebra.product(), a, b, backend=backend)
        results.append([out, *torch.autograd.grad(out.square().sum(), (a, b))])
    autograd = max((x - y).abs().max().item() for x, y in zip(*results, strict=True))
    # tables too large for one backward kernel take two
    large = Algebra(6)
    x, y, g = (torch.randn(large.dim, 9) for _ in range(3))
    truth = naive.bilinear_backward(large.product(), x.double(), y.double(), g.double())
    split = [error(o, t) for o, t in zip(fused.backward(large.product(), x, y, g), truth, strict=True)]
    x, y = torch.randn(2, 32, algebra.dim)
    truth = naive.bilinear(algebra.product(), x.t().double(), y.t().double()).t()
    atomic = error(reference_forms.atomic(algebra.product(), x, y), truth)
    print(json.dumps({"rows": rows, "autograd": autograd, "split": split, "atomic": atomic}))


if __name__ == "__main__":
    main()
