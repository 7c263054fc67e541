"""Rule decode: hypotheses of every evaluation set."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.speech.training_task import decode_set

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        for manifest, features, text in zip(
            snakemake.input.manifests, snakemake.input.features, snakemake.output, strict=True
        ):
            decode_set(
                Path(snakemake.input.model).parent,
                Path(manifest),
                [Path(features)],
                Path(text),
                batch_seconds=snakemake.config["decoding"]["batch_seconds"],
                threads=snakemake.threads,
                device=snakemake.config["training"]["device"],
            )
