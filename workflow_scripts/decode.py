"""Rule decode: hypotheses of one evaluation set."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.files import folder_of
from geomix.speech.decoding import decode_set

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        decode_set(
            folder_of(files.model, files.config, files.tokenizer, files.tokens),
            Path(files.manifest),
            [Path(files.features)],
            Path(snakemake.output[0]),
            batch_seconds=snakemake.config["decoding"]["batch_seconds"],
            threads=snakemake.threads,
            device=snakemake.config["training"]["device"],
        )
