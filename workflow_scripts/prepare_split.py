"""Rule prepare_split: the manifest of one split, its summary and the list of its sources."""

from geomix.errors import exit_with_sentence
from geomix.files import folder_of
from geomix.settings import corpus_at
from geomix.speech.corpora import prepare_split

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        generated = [str(folder_of(path)) for path in snakemake.input if path.endswith("settings.json")]
        corpus = corpus_at(snakemake.config, *generated)
        prepare_split(corpus, snakemake.wildcards.split, folder_of(snakemake.output.sources, snakemake.output.summary))
