"""Rule algebra_interpretability_report: phase 4's page and figure."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report.algebra.interpretability import build_interpretability

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        build_interpretability(Path(snakemake.output.markdown).parent)
