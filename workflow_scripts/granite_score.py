"""Rule granite_score: the shared scorer on a published checkpoint's hypotheses, after the named normaliser."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.studies.granite import score_sets

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        score_sets(
            dict(zip(snakemake.params.sets, snakemake.input.manifests, strict=True)),
            Path(snakemake.output.json[0]).parents[1],
            normaliser_name=snakemake.params.normaliser,
        )
