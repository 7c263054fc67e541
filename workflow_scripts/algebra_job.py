"""Rule algebra_job: one task and arm of phase 1, all its tables and seeds."""

from geomix.errors import exit_with_sentence
from geomix.studies.algebra.representation import run_job

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        run_job(snakemake.params.settings, snakemake.output[0], weights=next(iter(snakemake.output[1:]), None))
