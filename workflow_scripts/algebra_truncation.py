"""Rules algebra_truncation_job and algebra_truncation: a job of the study of truncation; its page from the jobs' records."""

from pathlib import Path

from geomix.errors import exit_with_sentence

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        if "markdown" in snakemake.output.keys():
            from geomix.report.algebra.truncation import build_truncation

            build_truncation(Path(snakemake.output.markdown).parent, snakemake.params.settings)
        else:
            from geomix.studies.algebra.truncation import run_cell

            run_cell(snakemake.params.settings, snakemake.output[0])
