"""Rule decode_espnet: hypotheses of one evaluation set by ESPnet's prefix search and by argmax-collapse."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.launch import decode
from geomix.files import folder_of

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        name, files = snakemake.wildcards.set, snakemake.input
        decode(
            folder_of(files.weights, files.options, files.tokenizer, files.tokens),
            {name: folder_of(*files.data)},
            {name: Path(snakemake.output.prefix)},
            {name: Path(snakemake.output.argmax)},
            threads=snakemake.threads,
            device=snakemake.config["training"]["device"],
        )
