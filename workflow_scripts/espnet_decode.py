"""Rule decode_espnet: hypotheses of every evaluation set by ESPnet's prefix search and by argmax-collapse."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.launch import decode

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        sets = snakemake.params.sets
        decode(
            Path(snakemake.input.weights).parent,
            {name: Path(snakemake.params.folder) / name for name in sets},
            dict(zip(sets, map(Path, snakemake.output.prefix), strict=True)),
            dict(zip(sets, map(Path, snakemake.output.argmax), strict=True)),
            threads=snakemake.threads,
            device=snakemake.config["training"]["device"],
        )
