"""Rules download_wikitext and download_wordpiece: one published file, checked against its SHA-256."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.language import text

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        text.download(getattr(text, snakemake.params.source), Path(snakemake.output[0]))
