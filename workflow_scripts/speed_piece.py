"""Rule speed_piece: one piece of the speed probe."""

from geomix.benchmarks.speed.measure import measure_piece
from geomix.errors import exit_with_sentence

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        measure_piece(
            snakemake.wildcards.piece,
            snakemake.output[0],
            threads=snakemake.threads,
            device=snakemake.params.device,
        )
