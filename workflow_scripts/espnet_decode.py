"""Rule decode_espnet: hypotheses of one evaluation set by ESPnet's prefix search and by argmax-collapse."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.launch import decode

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        name = snakemake.wildcards.set
        decode(
            Path(snakemake.input.weights).parent,
            {name: Path(snakemake.input[0]).parent},
            {name: Path(snakemake.output.prefix)},
            {name: Path(snakemake.output.argmax)},
            threads=snakemake.threads,
            device=snakemake.config["training"]["device"],
        )
