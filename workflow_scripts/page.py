"""Rules page, page_partial and algebra_page: the results page of a study."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.report.page import build_page

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        out = Path(snakemake.output[0])
        partial = out.parent.name == "partial"
        build_page(out.parent.parent if partial else out.parent, out, partial=partial)
