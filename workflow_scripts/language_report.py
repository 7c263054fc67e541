"""Rule language_report: comparisons, then tables and figures from records and logs alone."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.files import write_json
from geomix.report import build_report
from geomix.studies.comparison import compare_study
from geomix.studies.language import LANGUAGE

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        folder = Path(snakemake.output.csv).parent
        write_json(snakemake.output.comparisons, compare_study(LANGUAGE, folder))
        build_report(folder)
