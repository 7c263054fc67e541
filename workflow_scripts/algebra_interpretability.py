"""Rule algebra_interpretability: phase 4's tests on the trained models of phase 1."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.studies.algebra.interpretability import run_tests

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        run_tests(Path(snakemake.output[0]).parents[1], snakemake.params.settings, snakemake.output[0])
