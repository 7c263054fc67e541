"""Rules granite_decode and granite_ctc: hypotheses of every evaluation set by one published checkpoint, and its record."""

from geomix.errors import exit_with_sentence
from geomix.studies.granite import decode_sets

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        decode_sets(
            snakemake.params.checkpoint,
            dict(zip(snakemake.params.sets, snakemake.input.manifests, strict=True)),
            dict(zip(snakemake.params.sets, snakemake.output.texts, strict=True)),
            snakemake.output.record,
            head=snakemake.params.arm["head"],
            about={
                "run": snakemake.config["run"],
                "corpus": snakemake.config["corpus"]["name"],
                "arm": snakemake.wildcards.reference,
            },
            options=snakemake.params.options,
            device=snakemake.config["granite"]["device"],
            threads=snakemake.threads,
        )
