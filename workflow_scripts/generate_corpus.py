"""Rule generate_corpus: the recordings of a built-in corpus."""

from geomix.errors import exit_with_sentence
from geomix.files import folder_of
from geomix.speech.corpora import generate_corpus

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        generate_corpus(snakemake.params.settings, folder_of(*snakemake.output))
