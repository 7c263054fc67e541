"""Rule language_report: tables, comparisons and figures from records and logs alone."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report.language import build_report

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        build_report(Path(snakemake.output.csv).parent)
