"""Rule prepare_split: the manifest of one split, its summary and the list of its sources."""

import os
from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.settings import corpus_at
from geomix.speech.corpora import prepare_split

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        generated = [os.path.dirname(path) for path in snakemake.input if path.endswith("settings.json")]
        corpus = corpus_at(snakemake.config, *generated)
        prepare_split(corpus, snakemake.wildcards.split, Path(snakemake.output.summary).parent)
