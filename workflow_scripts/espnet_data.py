"""Rule espnet_data: ESPnet's Kaldi folder of one split."""

from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import write_data
from geomix.files import folder_of
from geomix.speech.tokenizer import Tokenizer

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        copies = dict(zip(snakemake.params.factors, files.audio, strict=True))
        tokenizer = Tokenizer.load(folder_of(files.tokenizer, files.tokens))
        write_data(files.manifest, tokenizer, folder_of(*snakemake.output), copies)
