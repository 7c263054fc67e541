"""What the fused pair mixer's kernels allocate: compiled for GPUs that are not here, beside the bound that chooses their tiles.

`python -m tests.kernels.shared_memory` compiles every tiling of every shape (about an hour on two cores); tests take a few.
"""

import itertools

from geomix.kernels.launch import interpreted
from geomix.kernels.pair_mixer import tiling

LOW = {"table", "gate", "g", "alpha", "d_logit", "d_g"}
STORED = {"u", "y", "grad", "d_u"}
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
WIDTHS, RANKS = (32, 64, 96, 128, 256, 384, 512), (8, 12, 16, 24, 32, 64, 128)

__all__ = ["allocated", "compiled", "interpreted", "shared_of", "sizes", "source"]


def sizes(operand: str, stored: str) -> tuple[int, int]:
    return BYTES[operand], BYTES[stored]


def source(kernel, tiles, rank, width, operand, stored):
    """A kernel of `tiling.KERNELS` with the types and constants of one shape."""
    from triton.compiler import ASTSource

    from geomix.kernels.pair_mixer import fused

    function = getattr(fused, f"_{kernel}_kernel")
    constants = {
        "R": rank, "D": width, "TILES": rank // 2, "BLOCK_R": tiling.block(rank), "BLOCK_D": tiling.block(width),
        "INNER": tiles.inner, "BLOCK": tiles.frames, "TWO_SIDED": True, "BLEND": False,
        "PRECISION": "ieee" if operand == "fp32" else "tf32",
    }  # fmt: skip
    constants = {k: v for k, v in constants.items() if k in function.arg_names}
    signature = {}
    for name in function.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in ("frames", "steps"):
            signature[name] = "i32"
        else:
            kind = operand if name in LOW else stored if name in STORED else "fp32"
            signature[name] = "*i32" if name == "shift" else f"*{kind}"
    return ASTSource(function, signature, constexprs=constants)


def compiled(kernel, tiles, rank, width, operand, stored, capability):
    """The kernel compiled to machine code for sm_<capability>; `.metadata.shared` are its bytes of shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget

    from geomix.kernels.pair_mixer.fused import WARPS

    return triton.compile(
        source(kernel, tiles, rank, width, operand, stored),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": WARPS, "num_stages": tiles.stages},
    )


def allocated(kernel, tiles, rank, width, operand, stored, capability) -> int:
    """The kernel's bytes of shared memory, as Triton allocates them."""
    from geomix.kernels.pair_mixer.fused import WARPS

    return shared_of(source(kernel, tiles, rank, width, operand, stored), capability, WARPS, tiles.stages)


def shared_of(source, capability, warps, stages) -> int:
    """Triton's allocation for a source, without the machine code, which takes ptxas half a minute for the largest."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    options = backend.parse_options({"num_warps": warps, "num_stages": stages})
    steps, context = {}, ir.context()
    backend.add_stages(steps, options, source.language)
    ir.load_dialects(context)
    backend.load_dialects(context)
    generated = backend.get_codegen_implementation(options)
    module = source.make_ir(target, options, generated, backend.get_module_map(), context)
    metadata = {"target": target, **options.__dict__}
    for step in ("ttir", "ttgir", "llir"):
        module = steps[step](module, metadata)
    return metadata["shared"]


def main() -> None:
    for width, rank, (operand, stored) in itertools.product(
        WIDTHS, RANKS, (("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16"))
    ):
        for kernel, capability in itertools.product(tiling.KERNELS, (80, 90)):
            limit = 1024 * tiling.LIMITS[capability // 10, 0]
            for tiles in tiling.tilings(kernel, rank, width, *sizes(operand, stored), limit)[:1]:
                found = allocated(kernel, tiles, rank, width, operand, stored, capability)
                bound = tiling.shared_bytes(kernel, tiles, rank, width, *sizes(operand, stored))
                word = "fits" if found <= bound else "EXCEEDS THE BOUND"
                print(
                    f"{width} x {rank} {operand} ({stored}) {kernel} sm_{capability} {tiles}: {found} of "
                    f"{bound} bytes, {word}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
