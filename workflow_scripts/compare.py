"""Rule compare: differences between arms, with intervals."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report.comparisons import compare_study

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        compare_study(Path(snakemake.input.study).parent)
