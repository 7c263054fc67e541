"""Rule prepare_corpus: manifests of all splits and the corpus's summary."""

from geomix.errors import exit_with_sentence
from geomix.speech.corpora import prepare_corpus

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        prepare_corpus(snakemake.params.corpus, snakemake.params.folder, **snakemake.params.limits)
