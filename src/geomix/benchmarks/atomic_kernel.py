"""The Triton kernel of `reference_forms.atomic`, apart so that importing the other forms needs no Triton."""

import triton
import triton.language as tl


@triton.jit
def kernel(a, b, out, i, j, k, sign, total, pairs, left, right, components, BLOCK: tl.constexpr):
    """out[entry, k] += sign * a[entry, i] * b[entry, j], one (entry, pair) per lane."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = lane < total
    entry, pair = lane // pairs, lane % pairs
    x = tl.load(a + entry * left + tl.load(i + pair, mask=real, other=0), mask=real, other=0.0)
    y = tl.load(b + entry * right + tl.load(j + pair, mask=real, other=0), mask=real, other=0.0)
    s = tl.load(sign + pair, mask=real, other=0.0)
    place = out + entry * components + tl.load(k + pair, mask=real, other=0)
    tl.atomic_add(place, x.to(tl.float32) * y.to(tl.float32) * s, mask=real)
