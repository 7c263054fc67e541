"""Rules report and report_partial: tables and figures from scores and records alone."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report import build_report
from geomix.studies.comparison import compare_study
from geomix.studies.speech import SPEECH

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        folder, out = Path(snakemake.input.study).parent, Path(snakemake.output.csv).parent
        partial = compare_study(SPEECH, folder, partial=True) if snakemake.rule == "report_partial" else None
        build_report(folder, out, partial=partial)
