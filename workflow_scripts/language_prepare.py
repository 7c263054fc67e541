"""Rule prepare_language: the token files of a text, its vocabulary and its summary."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.language.corpus import prepare_corpus

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        corpus = dict(snakemake.params.corpus)
        corpus["path"] = files.get("text")
        corpus["vocabulary"] = files.get("vocabulary", corpus["vocabulary"])
        prepare_corpus(corpus, Path(snakemake.output[0]).parent)
