"""Values and gradients of every kernel on a device, against the definitions in fp64 on the CPU or the same device."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from geomix.algebra import Algebra
from geomix.algebra.pair_product import product_of_kind
from geomix.kernels.depthwise import depthwise_conv
from geomix.kernels.dropout import dropout
from geomix.kernels.linear_cross_entropy import linear_cross_entropy
from geomix.kernels.linear_cross_entropy.naive import linear_cross_entropy as naive_cross_entropy
from geomix.kernels.pair_mixer import pair_mixer
from geomix.kernels.product import naive, product
from geomix.kernels.relative_attention import attend, relative_attend
from tests.gpu.report import Row

ALGEBRAS = [
    Algebra.truncated(3, 3), Algebra.truncated(4, 3), Algebra.truncated(4, 4), Algebra.truncated(5, 3), Algebra.truncated(5, 5),
    Algebra(3, 0, 1), Algebra(1, 3), Algebra(0, 3, 0, (0, 2)), Algebra(6),
]  # fmt: skip
HALF = {torch.bfloat16: 2**-7, torch.float16: 2**-10}


def relative(ours: torch.Tensor, truth: torch.Tensor) -> float:
    """Largest error over the largest value; infinite for a value that is no number where the truth is one."""
    ours, truth = ours.detach().double().cpu(), truth.detach().double().cpu()
    if not torch.equal(ours.isfinite(), truth.isfinite()):
        return float("inf")
    return ((ours - truth).abs().max() / truth.abs().max().clamp_min(1e-30)).item() if ours.numel() else 0.0


def both(call, inputs, grad):
    """Value and every gradient of a call."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = call(*leaves)
    return [y, *torch.autograd.grad(y, leaves, grad.to(y.dtype))]


def products(device: torch.device, quick: bool = False) -> Iterator[Row]:
    """Every algebra (`quick`: three), layout and type; batch sizes that are no multiple of a block."""
    torch.manual_seed(0)
    for algebra in ALGEBRAS[:3] if quick else ALGEBRAS:
        table = algebra.product()
        for batch, layout, dtype in (
            (1, 0, torch.float32), (777, 0, torch.float32), (777, -1, torch.float32), (4097, 0, torch.float64),
            (1000, 0, torch.bfloat16), (1000, -1, torch.float16),
        ):  # fmt: skip
            shape = (algebra.dim, batch) if layout == 0 else (batch, algebra.dim)
            a, b, grad = (torch.randn(shape, device=device, dtype=torch.float64).to(dtype) for _ in range(3))
            call = lambda x, y, table=table, layout=layout: product(table, x, y, components=layout)
            ours, again = both(call, (a, b), grad), both(call, (a, b), grad)
            side = lambda x, layout=layout: x.double() if layout == 0 else x.double().t()
            exact = [
                naive.bilinear(table, side(a), side(b)),
                *naive.bilinear_backward(table, side(a), side(b), side(grad)),
            ]
            error = max(relative(side(x), y) for x, y in zip(ours, exact, strict=True))
            limit = HALF.get(dtype, 1e-5 if dtype == torch.float32 else 1e-13)
            same = all(torch.equal(x, y) for x, y in zip(ours, again, strict=True))
            yield Row("product", f"{algebra} B{batch} components {layout} {dtype}", error, limit)
            yield Row("product", f"{algebra} B{batch} twice the same", float(not same), 0.0)


def wide_strides(device: torch.device) -> Iterator[Row]:
    """310 million fp16 products of Cl(3): a component times its stride is no int32. Needs 20 GB; the last entries are looked at."""
    if device.type != "cuda" or torch.cuda.get_device_properties(device).total_memory < 40e9:
        yield Row("wide strides", "left out: needs a GPU of 40 GB")
        return
    table, n = Algebra(3).product(), 310_000_000
    a, b = (torch.empty(8, n, dtype=torch.float16, device=device).fill_(0.5) for _ in range(2))
    last = torch.randn(2, 8, 64, device=device, dtype=torch.float16)
    a[:, -64:], b[:, -64:] = last[0], last[1]
    out = product(table, a, b, components=0)
    yield Row("wide strides", f"Cl(3) B{n} fp16", relative(out[:, -64:], naive.bilinear(table, *last.double())), 2**-10)
    yield Row(
        "wide strides",
        "first entries",
        relative(out[:, :8], naive.bilinear(table, a[:, :8].double(), b[:, :8].double())),
        2**-10,
    )


# kind, width, rank, frames, lengths, two-sided, blend, empty, type of the products
MIXERS = [
    ("wedge", 256, 32, 203, [203, 40, 1], True, False, "zero", "fp32"),
    ("wedge", 256, 32, 203, [203, 40, 1], True, False, "zero", "bf16"),
    ("wedge", 256, 32, 120, [120, 7], False, True, "bias", "fp32"),
    ("symmetric", 256, 32, 203, [203, 0, 111], True, False, "zero", "fp32"),
    ("symmetric", 96, 24, 65, [65, 64], True, True, "bias", "bf16"),
    ("signed", 256, 32, 203, [203, 90], True, False, "zero", "fp32"),
    ("signed", 64, 16, 65, [65, 3], False, False, "bias", "fp16"),
    ("geometric", 256, 32, 130, [130, 129], True, False, "zero", "fp32"),
    ("geometric", 33, 11, 40, [40, 40], False, True, "bias", "bf16"),
    ("wedge", 512, 32, 65, [65, 64], True, False, "zero", "fp32"),
    ("wedge", 384, 24, 65, [65, 64], True, False, "zero", "bf16"),
    ("wedge", 256, 64, 65, [65, 64], True, False, "zero", "fp32"),
    ("signed", 256, 64, 65, [65, 64], True, False, "zero", "bf16"),
    ("wedge", 256, 128, 65, [65, 64], True, False, "zero", "bf16"),
    ("signed", 64, 128, 65, [65, 64], True, False, "zero", "fp32"),
    ("symmetric", 512, 128, 33, [33, 20], True, False, "zero", "fp32"),
    ("symmetric", 32, 5, 33, [33, 20], True, False, "zero", "fp32"),
    ("signed", 20, 3, 33, [33, 20], True, False, "zero", "fp32"),
]
# the same with keys of Pairing or another gate, fused or not
MIXER_VARIANTS = [
    (("wedge", 256, 32, 130, [130, 129], True, False, "zero", "fp32"), {"pool": "sum"}),
    (("symmetric", 96, 24, 65, [65, 1], True, False, "bias", "bf16"), {"normalise": False}),
    (("geometric", 33, 11, 40, [40, 20], False, False, "zero", "fp32"), {"normalise": False, "pool": "sum"}),
    (("wedge", 96, 24, 65, [65, 64], True, False, "zero", "fp32"), {"gating": "add"}),
]
TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
NAMES = ("y", "u", "z", "project", "project_bias", "gate", "gate_bias")


def mixer_arguments(kind, width, rank, frames, lengths, device):
    """(product, six tensors in fp32, mask): equal neighbours (thin pairs) and a zero frame included."""
    f = product_of_kind(kind, rank, 0)
    shapes = [
        (len(lengths), frames, width), (len(lengths), frames, rank), (width, f.out_dim), (width,), (width, 2 * width), (width,),
    ]  # fmt: skip
    scales = [1, 1, f.out_dim**-0.5, 0.3, width**-0.5, 0.3]
    tensors = [torch.randn(s) * scale for s, scale in zip(shapes, scales, strict=True)]
    tensors[1][:, 3] = tensors[1][:, 2]
    tensors[1][:, 5] = 0
    mask = torch.arange(frames) < torch.tensor(lengths).unsqueeze(1)
    return f, [t.to(device) for t in tensors], mask.to(device)


def mixers(device: torch.device) -> Iterator[Row]:
    """The pair mixer as the dispatcher runs it, against the paper's form in fp64 on the same numbers."""
    torch.manual_seed(0)
    for case, variant in [(case, {}) for case in MIXERS] + MIXER_VARIANTS:
        kind, width, rank, frames, lengths, two_sided, blend, empty, low = case
        f, tensors, mask = mixer_arguments(kind, width, rank, frames, lengths, device)
        grad = torch.randn(tensors[0].shape, device=device)
        options = {"two_sided": two_sided, "blend": blend, "empty": empty, **variant}
        exact = both(
            lambda *x, f=f, mask=mask, options=options: pair_mixer(f, *x, mask, (1, 2, 5), form="paper", backend="naive", **options),
            [t.double() for t in tensors], grad,
        )  # fmt: skip
        with torch.autocast(device.type, TYPES[low] or torch.bfloat16, enabled=low != "fp32"):
            call = lambda *x, f=f, mask=mask, options=options: pair_mixer(f, *x, mask, (1, 2, 5), **options)
            ours, again = both(call, tensors, grad), both(call, tensors, grad)
        case = f"{kind} D{width} r{rank} T{frames} two-sided {two_sided} blend {blend} {empty} {low} {variant or ''}".rstrip()
        for name, x, y in zip(NAMES, ours, exact, strict=True):
            if low == "fp32":
                yield Row(
                    "pair mixer",
                    f"{case}: {name}",
                    relative(x, y),
                    3e-5 if name == "y" else 1e-3,
                    note=_form(f, tensors, device),
                )
            elif name != "z":  # at thin pairs it is large where rounding decides
                error = ((x.double() - y).norm() / y.norm()).item()
                yield Row("pair mixer", f"{case}: {name}", error, 3e-2)
        same = all(torch.equal(x, y) for x, y in zip(ours, again, strict=True))
        if device.type == "cuda" and kind != "symmetric":
            yield Row("pair mixer", f"{case}: twice the same", float(not same), 0.0)


def _form(f, tensors, device) -> str:
    from geomix.kernels.pair_mixer.tiling import KERNELS, shared_limit, tilings

    if device.type != "cuda":
        return "definition"
    chosen = [tilings(kernel, f.in_dim, tensors[0].shape[-1], 4, 4, shared_limit(device)) for kernel in KERNELS]
    return (
        "definition"
        if not all(chosen)
        else "tiles " + " ".join(f"{t[0].frames}/{t[0].inner}/{t[0].stages}" for t in chosen)
    )


def strides_and_compilation(device: torch.device) -> Iterator[Row]:
    """Strided and expanded biases; a model around the mixer under torch.compile(fullgraph=True); another GPU than the current one."""
    torch.manual_seed(0)
    f, tensors, mask = mixer_arguments("wedge", 64, 16, 50, [50, 31], device)
    tensors[3] = tensors[3][:1].expand(64).clone()
    grad = torch.randn(tensors[0].shape, device=device)
    call = lambda *x: pair_mixer(f, *x, mask, (1, 2, 5))
    plain = both(call, tensors, grad)
    wide = lambda x: torch.stack((torch.full_like(x, 1e3), x), -1)[..., 1]
    cases = {
        "columns as biases": {3: wide(tensors[3]), 5: wide(tensors[5])},
        "an expanded bias": {3: tensors[3][:1].clone().expand(64)},
        "every second number": {i: wide(x) for i, x in enumerate(tensors)},
    }
    for case, other in cases.items():
        found = both(call, [other.get(i, x) for i, x in enumerate(tensors)], grad)
        yield Row("strides", case, max(relative(x, y) for x, y in zip(found, plain, strict=True)), 1e-6)
    model = lambda *x: pair_mixer(f, x[0] * 2, *x[1:], mask, (1, 2, 5)).sin()
    torch._dynamo.reset()
    found = both(torch.compile(model, fullgraph=True, backend="aot_eager"), tensors, grad)
    expected = both(model, tensors, grad)
    yield Row(
        "compile", "fullgraph, aot_eager", max(relative(x, y) for x, y in zip(found, expected, strict=True)), 1e-4
    )
    if device.type == "cuda" and torch.cuda.device_count() > 1:
        other = torch.device("cuda", 1 - torch.cuda.current_device())
        moved = lambda *x: pair_mixer(f, *x, mask.to(other), (1, 2, 5))
        found = both(moved, [x.to(other) for x in tensors], grad.to(other))
        yield Row("another GPU", str(other), max(relative(x, y) for x, y in zip(found, plain, strict=True)), 1e-4)


def others(device: torch.device) -> Iterator[Row]:
    """Relative attention, output and cross-entropy in one, depthwise convolution, dropout."""
    torch.manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64).to(device)
    lengths = torch.tensor([37, 20])
    inputs = [draw(2, 37, 4, 16) for _ in range(3)] + [draw(73, 4, 16), draw(4, 16), draw(4, 16)]
    grad = draw(2, 37, 4, 16)
    exact = both(lambda *x: attend(*x, lengths), inputs, grad)
    ours = both(lambda *x: relative_attend(*x, lengths), [x.float() for x in inputs], grad)
    yield Row(
        "relative attention", "B2 T37 H4 d16", max(relative(x, y) for x, y in zip(ours, exact, strict=True)), 1e-4
    )
    hidden, weight, targets = draw(301, 32), draw(777, 32), torch.randint(0, 777, (301,)).to(device)
    one = torch.ones((), dtype=torch.float64, device=device)
    exact = both(lambda h, w: naive_cross_entropy(h, w, targets), (hidden, weight), one)
    ours = both(lambda h, w: linear_cross_entropy(h, w, targets, 128), (hidden.float(), weight.float()), one)
    yield Row("cross-entropy", "301 tokens of 777", max(relative(x, y) for x, y in zip(ours, exact, strict=True)), 1e-4)
    x, weight, bias, grad = draw(2, 50, 12), draw(12, 1, 15), draw(12), draw(2, 50, 12)
    plain = lambda a, w, b: torch.nn.functional.conv1d(a.transpose(1, 2), w, b, padding=7, groups=12).transpose(1, 2)
    exact = both(plain, (x, weight, bias), grad)
    ours = both(depthwise_conv, [v.float() for v in (x, weight, bias)], grad)
    yield Row("depthwise", "B2 T50 C12 kernel 15", max(relative(a, b) for a, b in zip(ours, exact, strict=True)), 1e-4)
    dropped = (dropout(torch.ones(1000, 1000, device=device), 0.1) == 0).float().mean().item()
    yield Row("dropout", "rate of 0.1", abs(dropped - 0.1), 2e-3)
