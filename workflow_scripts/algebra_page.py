"""Rules algebra_page of phases 2 and 3: the phase's page from what its study found and what its steps cost."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report.algebra.models import PAGES

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        page = Path(snakemake.output.markdown)
        PAGES[page.stem](page.parent)
