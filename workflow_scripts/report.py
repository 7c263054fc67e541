"""Rules report and report_partial: tables and figures from scores and records alone."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report import build_report

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        build_report(
            Path(snakemake.input.study).parent,
            out=Path(snakemake.output.csv).parent,
            partial=snakemake.rule == "report_partial",
        )
