"""Rule tokenizer: a SentencePiece model of the unperturbed training transcripts."""

from geomix.errors import exit_with_sentence
from geomix.files import folder_of
from geomix.speech.manifest import read_manifest
from geomix.speech.tokenizer import train_tokenizer

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        texts = [utterance.text for utterance in read_manifest(snakemake.input.manifest) if utterance.speed == 1.0]
        train_tokenizer(texts, folder_of(*snakemake.output), **snakemake.params.tokenizer)
