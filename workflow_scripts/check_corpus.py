"""Rule check_corpus: what no split can see alone, and the summary of all."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.speech.corpora import check_corpus

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        folders = {split: Path(folder) for split, folder in snakemake.params.folders.items()}
        check_corpus(snakemake.config["corpus"], folders, Path(snakemake.output[0]))
