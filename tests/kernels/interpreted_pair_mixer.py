"""Run by test_pair_mixer.py in a process of its own with TRITON_INTERPRET=1: errors of the fused pair mixer, as JSON on stdout."""

import json
import os

import torch

from geomix.algebra.pair_product import product_of_kind
from geomix.kernels.pair_mixer import pair_mixer

NAMES = ("y", "u", "z", "project", "project_bias", "gate", "gate_bias")
# kind, width, rank, frames, lengths, two-sided, blend, empty: no size is a multiple of a tile, lengths of 1 and 0 included
CASES = [
    ("wedge", 20, 13, 21, [21, 13], True, False, "zero"),
    ("wedge", 33, 8, 40, [40, 1], False, True, "bias"),
    ("symmetric", 17, 8, 35, [35, 0], True, False, "zero"),
    ("symmetric", 17, 5, 35, [35, 0], True, False, "zero"),
    ("symmetric", 36, 9, 19, [7, 19], False, True, "zero"),
    ("signed", 20, 9, 21, [21, 2], True, True, "bias"),
    ("signed", 24, 11, 33, [33, 20], False, False, "zero"),
    ("geometric", 36, 6, 40, [40], True, False, "zero"),
    ("geometric", 19, 11, 23, [23, 5], False, True, "bias"),
    ("wedge", 40, 32, 70, [70, 37], True, False, "zero"),
]
# the same with keys of Pairing whose anchors PyTorch makes
VARIANTS = [
    (("wedge", 20, 13, 21, [21, 13], True, False, "zero"), {"pool": "sum"}),
    (("symmetric", 17, 8, 35, [35, 0], False, True, "bias"), {"normalise": False}),
    (("geometric", 19, 11, 23, [23, 5], True, False, "zero"), {"normalise": False, "pool": "sum"}),
    (("signed", 20, 9, 21, [21, 2], True, False, "zero"), {"side_weights": (1.0, -1.0)}),
]


def inputs(kind, width, rank, frames, lengths, dtype=torch.float64):
    f = product_of_kind(kind, rank, 0)
    shapes = [
        (len(lengths), frames, width), (len(lengths), frames, rank), (width, f.out_dim), (width,), (width, 2 * width), (width,),
    ]  # fmt: skip
    scales = [1, 1, f.out_dim**-0.5, 0.3, width**-0.5, 0.3]
    tensors = [torch.randn(s, dtype=torch.float64) * scale for s, scale in zip(shapes, scales, strict=True)]
    tensors[1][:, 3] = tensors[1][:, 2]  # equal neighbours: thin pairs
    tensors[1][:, 5] = 0
    mask = torch.arange(frames) < torch.tensor(lengths).unsqueeze(1)
    return f, [t.to(dtype) for t in tensors], mask


def main():
    assert os.environ.get("TRITON_INTERPRET") == "1"
    torch.manual_seed(0)
    rows = []
    for (kind, width, rank, frames, lengths, two_sided, blend, empty), variant in [
        (case, {}) for case in CASES
    ] + VARIANTS:
        f, tensors, mask = inputs(kind, width, rank, frames, lengths)
        grad = torch.randn_like(tensors[0])
        options = {"two_sided": two_sided, "blend": blend, "empty": empty, **variant}
        results = []
        for dtype, backend in ((torch.float64, "naive"), (torch.float32, "fused"), (torch.float32, "fused")):
            leaves = [t.to(dtype).requires_grad_() for t in tensors]
            form = "paper" if backend == "naive" else "anchored"  # against the definition, not against the rewrite
            y = pair_mixer(f, *leaves, mask, (1, 2, 5), form=form, backend=backend, **options)
            results.append([y, *torch.autograd.grad(y, leaves, grad.to(dtype))])
        truth, ours, again = results
        rows.append(
            {
                "case": f"{kind} D{width} r{rank} T{frames} two_sided={two_sided} blend={blend} empty={empty} {variant}",
                "errors": {
                    n: ((a - b).abs().max() / b.abs().max()).item() for n, a, b in zip(NAMES, ours, truth, strict=True)
                },
                "repeatable": all(torch.equal(a, b) for a, b in zip(ours, again, strict=True)),
            }
        )
    # half-precision matrix products under autocast, fp32 inputs and outputs (fp16: the interpreter has no right bf16)
    f, tensors, mask = inputs("wedge", 40, 9, 33, [33, 20])
    grad = torch.randn_like(tensors[0])
    results = []
    for half, backend in ((False, "naive"), (True, "fused")):
        leaves = [t.to(torch.float32 if half else torch.float64).requires_grad_() for t in tensors]
        with torch.autocast("cpu", torch.float16, enabled=half):
            y = pair_mixer(f, *leaves, mask, (1, 2, 5), backend=backend)
        assert y.dtype == leaves[0].dtype
        results.append([y, *torch.autograd.grad(y, leaves, grad.to(y.dtype))])
    # z's gradient at thin pairs is left out: it is large where rounding decides
    half = {
        n: ((a - b).norm() / b.norm()).item() for n, a, b in zip(NAMES, results[1], results[0], strict=True) if n != "z"
    }
    print(json.dumps({"rows": rows, "half": half, "strided": strided(), "nan": nan(), "compiled": compiled()}))


def strided() -> dict:
    """Largest difference of value and gradients between arguments and equal ones of other strides, by case and name."""
    f, tensors, mask = inputs("wedge", 20, 9, 21, [21, 13], torch.float32)
    tensors[3], tensors[5] = tensors[3][:1].expand(20).contiguous(), tensors[5]
    wide = lambda x: torch.stack((torch.full_like(x, 1e3), x, torch.full_like(x, 1e3)), -1)[..., 1]
    turned = lambda x: x.transpose(0, -1).contiguous().transpose(0, -1)
    cases = {
        "columns as biases": {3: wide(tensors[3]), 5: wide(tensors[5])},
        "one number expanded": {3: tensors[3][:1].clone().expand(20)},
        "transposed": {i: turned(tensors[i]) for i in (0, 1, 2, 4)},
        "every second": {i: wide(tensors[i]) for i in range(6)},
    }
    grad = torch.randn_like(tensors[0])

    def run(given, grad):
        leaves = [x.detach().requires_grad_() for x in given]
        y = pair_mixer(f, *leaves, mask, (1, 2, 5), backend="fused")
        return [y, *torch.autograd.grad(y, leaves, grad)]

    truth = run(tensors, grad)
    found = {}
    for case, other in cases.items():
        given = [other.get(i, x) for i, x in enumerate(tensors)]
        assert any(not x.is_contiguous() for x in given), case
        rows = zip(NAMES, run(given, turned(grad)), truth, strict=True)
        found[case] = {n: (a - b).abs().max().item() for n, a, b in rows}
    return found


def nan() -> dict:
    """Frames of 12 with a NaN in their output when frame 4 has one, in both forms."""
    f, tensors, mask = inputs("wedge", 20, 9, 12, [12], torch.float32)
    tensors[1][0, 4, 2] = torch.nan
    return {
        name: pair_mixer(f, *tensors, mask, (1, 2), backend=name)[0].isnan().any(-1).tolist()
        for name in ("naive", "fused")
    }


def compiled() -> dict:
    """Error of value and gradients of a compiled model around the fused form, by kind."""
    found = {}
    for name, kind, rank in (
        ("wedge", "wedge", 9), ("signed", "signed", 8), ("geometric", "geometric", 9), ("symmetric r5", "symmetric", 5),
    ):  # fmt: skip
        f, tensors, mask = inputs(kind, 20, rank, 12, [12, 7], torch.float32)
        model = lambda *x, f=f, mask=mask: pair_mixer(f, x[0] * 2, *x[1:], mask, (1, 2), backend="fused").sin()
        results = []
        for call in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
            leaves = [t.clone().requires_grad_() for t in tensors]
            y = call(*leaves)
            results.append([y, *torch.autograd.grad(y.sum(), leaves)])
        found[name] = max((a - b).abs().max().item() for a, b in zip(*results, strict=True))
    return found


if __name__ == "__main__":
    main()
