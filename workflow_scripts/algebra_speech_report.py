"""Rule algebra_speech_report: phase 3's page on speech from the records of its jobs."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report.algebra.models import build_speech

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        build_speech(Path(snakemake.output.markdown).parent, snakemake.params.arms)
