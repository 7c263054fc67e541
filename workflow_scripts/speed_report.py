"""Rule speed_report: table, plots and record of the measured pieces."""

from geomix.benchmarks.speed.page import build_report
from geomix.errors import exit_with_sentence
from geomix.files import folder_of

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        build_report(list(snakemake.input), folder_of(*snakemake.output))
