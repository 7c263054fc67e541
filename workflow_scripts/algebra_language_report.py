"""Rule algebra_language_report: the page, table and figure of phase 2 or 3 from the records of its jobs."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report.algebra.models import build_architectures, build_components

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        build = {"components": build_components, "architectures": build_architectures}[snakemake.wildcards.phase]
        build(Path(snakemake.output.markdown).parent, snakemake.params.settings)
