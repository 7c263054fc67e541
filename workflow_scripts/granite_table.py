"""Rule granite_table: rows of the published checkpoints, marked as references."""

from geomix.errors import exit_with_sentence
from geomix.report.references import reference_rows, write_reference_tables

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        rows = reference_rows(
            snakemake.params.folder,
            snakemake.params.sets,
            arms=snakemake.params.arms,
            resamples=snakemake.params.comparison["resamples"],
            seed=snakemake.params.comparison["seed"],
        )
        write_reference_tables(rows, snakemake.output.csv, snakemake.output.markdown)
