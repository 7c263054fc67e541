"""Rules report and report_partial of any study: tables and figures from scores and records alone."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report import build_report
from geomix.settings.instances import study_of
from geomix.studies.comparison import compare_study
from geomix.studies.kinds import KINDS

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        out = Path(snakemake.output.csv).parent
        study = study_of(snakemake.config, snakemake.output.csv)
        partial = compare_study(KINDS[study.kind], study.folder, partial=True) if out.name == "partial" else None
        build_report(study.folder, out, partial=partial)
