"""What a block of the speed probe has to do: floating point operations and bytes, by formula."""

from __future__ import annotations

from geomix.benchmarks.speed.pieces import OFFSETS, Sizes


def block_work(form: str, length: int, size: int = 4, sizes: Sizes | None = None) -> dict[str, dict[str, float]]:
    """FLOP and bytes of a training step at 16,384 tokens: {"block": {"flop", "bytes"}, "mixer": {...}}.

    FLOP: six a weight of each matrix product, causal attention's scores counted as half. Bytes: each product reads its inputs
    and writes its output once, element-wise work is fused into its neighbours, numbers of `size` bytes; backward moves twice
    what forward does. Weights are not counted (0.8 M numbers against 16,384 tokens).
    """
    sizes = sizes or Sizes()
    D, r, K, F, n = sizes.width, sizes.rank, sizes.rank * (sizes.rank - 1) // 2, sizes.ff_dim, len(OFFSETS)
    # (weights, numbers a token) of each mixer
    mixer = {
        "attention": (4 * D * D + length * D, (D + 3 * D) + (3 * D + D) + 2 * D),
        # a pair vector is written, divided and projected for each offset
        "paper": (D * r + n * K * D + 2 * D * D, (D + r) + n * (2 * r + 3 * K + 2 * D) + 3 * D),
        # one pair vector, held in cache
        "anchored": (D * r + K * D + 2 * D * D, (D + r) + (n + 1) * r + (2 * r + D) + 3 * D),
        # u and z in, the result out
        "fused": (D * r + K * D + 2 * D * D, (D + r) + 3 * r + 2 * D),
    }[form]
    norm, ff = (0, 3 * D), (2 * D * F, (D + F) + 2 * F + (F + D) + 3 * D)
    return {
        what: {
            "flop": 6.0 * sizes.tokens * sum(weights for weights, _ in parts),
            "bytes": 3.0 * size * sizes.tokens * sum(numbers for _, numbers in parts),
        }
        for what, parts in (("mixer", [mixer]), ("block", [mixer, norm, ff]))
    }
