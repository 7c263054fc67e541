"""Times and bandwidths: every kernel forwards and with its gradients, beside the device's own copy."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from geomix.algebra import Algebra
from geomix.kernels.linear_cross_entropy import linear_cross_entropy
from geomix.kernels.product import product
from geomix.kernels.relative_attention import relative_attend
from geomix.mixers import Frames, make_mixer
from tests.gpu.report import Row

ARMS = {
    "attention": {"mixer": "attention"},
    "wedge": {"mixer": "pair", "kind": "wedge", "rank": 32},
    "symmetric": {"mixer": "pair", "kind": "symmetric", "rank": 32},
    "signed": {"mixer": "pair", "kind": "signed", "rank": 32},
    "geometric": {"mixer": "pair", "kind": "geometric", "rank": 32},
    "blocked": {"mixer": "blocked_attention"},
    "multivector": {"mixer": "multivector_attention"},
}


def median_us(call: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Median time of a call in microseconds after two warm-ups; at least three repeats."""
    call(), call()
    times, stop = [], time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < stop and len(times) < 500):
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        else:
            begun = time.perf_counter()
            call()
            times.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(times)


def copy_rate(device: torch.device, quick: bool) -> float:
    """Bytes a second, read and written, of a device-to-device copy."""
    a = torch.empty((1 << 22) if quick or device.type == "cpu" else (1 << 28), device=device)
    b = torch.empty_like(a)
    return 2 * a.nbytes / median_us(lambda: b.copy_(a), device, 0.2) * 1e6


def measured(device: torch.device, quick: bool) -> Iterator[Row]:
    """Rows of all kernels; `quick` takes sizes for a processor."""
    rate, seconds = copy_rate(device, quick), 0.02 if quick else 0.2
    yield Row("speed", "copy", gb_per_s=rate / 1e9, of_copy=1.0)

    def row(part: str, case: str, call: Callable[[], object], moved: int) -> Row:
        spent = median_us(call, device, seconds)
        return Row(part, case, microseconds=spent, gb_per_s=moved / spent / 1e3, of_copy=moved / spent * 1e6 / rate)

    yield from products(device, quick, row)
    yield from mixers(device, quick, row)
    tokens, vocabulary = (64, 500) if quick else (4096, 30_522)
    hidden, weight = torch.randn(tokens, 64, device=device), torch.randn(vocabulary, 64, device=device)
    leaves, targets = (
        [hidden.requires_grad_(), weight.requires_grad_()],
        torch.randint(0, vocabulary, (tokens,), device=device),
    )
    yield row(
        "cross-entropy", f"{tokens} tokens of {vocabulary} forward and backward",
        lambda: torch.autograd.grad(linear_cross_entropy(*leaves, targets), leaves), 3 * (hidden.nbytes + weight.nbytes),
    )  # fmt: skip
    frames = 32 if quick else 400
    q = torch.randn(2 if quick else 32, frames, 4, 64, device=device)
    p, u = torch.randn(2 * frames - 1, 4, 64, device=device), torch.randn(4, 64, device=device)
    lengths = torch.full((len(q),), frames)
    yield row(
        "relative attention", f"B{len(q)} T{frames}", lambda: relative_attend(q, q, q, p, u, u, lengths), 4 * q.nbytes
    )


def products(device: torch.device, quick: bool, row: Callable[..., Row]) -> Iterator[Row]:
    """The article's algebras, component-major, on a million entries."""
    for n, k in ((3, 3),) if quick else ((3, 3), (4, 3), (4, 4), (5, 3)):
        algebra = Algebra.truncated(n, k)
        batch = 1 << (12 if quick else 20)
        for dtype in (torch.float32,) if quick else (torch.float32, torch.bfloat16):
            a, b, g = (torch.randn(algebra.dim, batch, device=device, dtype=dtype) for _ in range(3))
            leaves = [x.detach().requires_grad_() for x in (a, b)]
            forward = functools.partial(product, algebra.product(), components=0)
            gradients = lambda forward=forward, leaves=leaves, g=g: torch.autograd.grad(forward(*leaves), leaves, g)
            case = f"{algebra} B{batch} {str(dtype).removeprefix('torch.')}"
            yield row("product", f"{case} forward", functools.partial(forward, a, b), 3 * a.nbytes)
            yield row("product", f"{case} forward and backward", gradients, 8 * a.nbytes)


def mixers(device: torch.device, quick: bool, row: Callable[..., Row]) -> Iterator[Row]:
    """Each mixer of the study at width 256 on 16,384 frames, forwards and with all gradients, in fp32 and in bf16 under autocast."""
    width, batch, frames = (32, 2, 40) if quick else (256, 32, 512)
    for name, arguments in ARMS.items():
        mixer = make_mixer(
            width=width, **({**arguments, "rank": 8} if quick and "rank" in arguments else arguments)
        ).to(device)
        x = torch.randn(batch, frames, width, device=device, requires_grad=True)
        of = Frames.of(torch.full((batch,), frames), frames, width, device=device)
        learned = [x, *(p for p in mixer.parameters() if p.requires_grad)]
        for low in (False,) if quick else (False, True):

            def forward(mixer=mixer, x=x, of=of, low=low):
                with torch.autocast(device.type, torch.bfloat16, enabled=low):
                    return mixer(x, of)

            def backward(forward=forward, learned=learned):
                y = forward()
                return torch.autograd.grad(y.float().sum(), learned)

            case = f"{name} D{width} B{batch} T{frames} {'bf16' if low else 'fp32'}"
            yield row("mixer", f"{case} forward", forward, 2 * x.nbytes)
            yield row("mixer", f"{case} forward and backward", backward, 5 * x.nbytes)
