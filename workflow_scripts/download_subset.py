"""Rule download_subset: one archive of LibriSpeech, checked against its published checksum and unpacked."""

from geomix.errors import exit_with_sentence
from geomix.speech.corpora.librispeech import download

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        download(snakemake.wildcards.subset, snakemake.params.folder)
