"""How large the fused pair mixer's tiles may be: a bound on each kernel's shared memory, known before the launch.

The bounds were fitted to what Triton 3.8 allocates for sm_80 and sm_90 and are never below it: tests compile the kernels at the
shapes that configurations reach and compare. On an A100 a program may take 163 KB, on an H100 227 KB.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from geomix.algebra.constants import constant

MAX_RANK = (
    128  # beyond, the sign table alone (r x r fp32) exceeds the shared memory of every GPU, and nobody has compiled it
)
KERNELS = ("forward", "backward", "table_gradient")
# shared memory that one program may take, in KB by compute capability, where the driver is not asked (NVIDIA's CUDA guide, table 30)
LIMITS = {
    (7, 0): 96,
    (7, 5): 64,
    (8, 0): 163,
    (8, 6): 99,
    (8, 7): 163,
    (8, 9): 99,
    (9, 0): 227,
    (10, 0): 227,
    (12, 0): 99,
}


@dataclass(frozen=True)
class Tiling:
    """Frames of a program, columns of the gate's inner loop, stages of Triton's pipeline."""

    frames: int
    inner: int
    stages: int


# fastest first; tl.dot needs 16 rows
TILINGS = (Tiling(32, 32, 3), Tiling(32, 32, 2), Tiling(16, 32, 2), Tiling(16, 16, 1))


def block(size: int) -> int:
    """The power of two, 16 at least, that holds `size` rows or columns."""
    return max(16, 1 << (size - 1).bit_length())


def shared_bytes(kernel: str, tiling: Tiling, rank: int, width: int, operand: int, stored: int) -> int:
    """An upper bound of a kernel's dynamic shared memory; `operand` and `stored` are bytes a number of the products and of u."""
    r, d, frames, inner, buffers = block(rank), block(width), tiling.frames, tiling.inner, max(1, tiling.stages - 1)
    table, gate = r * d * operand, 2 * inner * d * operand
    if kernel == "forward":
        return 1024 + max(buffers * (gate + frames * inner * (operand + stored)), table + 4 * frames * r * 4)
    rows = frames * d * operand
    if kernel == "backward":
        return 1024 + rows + max(buffers * (gate + frames * inner * operand), 2 * table + 4 * frames * r)
    loop = buffers * (rows + 6 * frames * r * 4) + frames * r * operand
    return 1024 + max(loop, 4 * r * d if operand < 4 else 0)  # the sum changes its layout before it is stored


def tilings(kernel: str, rank: int, width: int, operand: int, stored: int, limit: int) -> tuple[Tiling, ...]:
    """The tilings that fit into `limit` bytes, fastest first."""
    return tuple(t for t in TILINGS if shared_bytes(kernel, t, rank, width, operand, stored) <= limit)


def fits(rank: int, width: int, operand: int, stored: int, limit: int) -> bool:
    """Whether every kernel has a tiling, the anchors' at any rank up to MAX_RANK (`fused_anchors.frames_of_a_program`)."""
    return rank <= MAX_RANK and all(tilings(kernel, rank, width, operand, stored, limit) for kernel in KERNELS)


@constant
def shared_limit(device: torch.device) -> int:
    """Bytes of dynamic shared memory that a program may take on a device; an A100's where there is no GPU (the interpreter)."""
    if device.type != "cuda":
        return 1024 * LIMITS[8, 0]
    found = torch.cuda.get_device_properties(device)
    opted = getattr(found, "shared_memory_per_block_optin", 0)
    return opted or 1024 * LIMITS.get((found.major, found.minor), 48)
