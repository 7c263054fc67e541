"""Rule algebra_representation: phase 1's page, table, verdicts and figure from the records of its jobs."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report.algebra.representation import build_representation

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        build_representation(Path(snakemake.output.csv).parent, snakemake.params.settings)
