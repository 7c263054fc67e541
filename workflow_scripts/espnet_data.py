"""Rule espnet_data: ESPnet's Kaldi folder of one split."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import write_data
from geomix.speech.tokenizer import Tokenizer

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        copies = dict(zip(snakemake.params.factors, files.audio, strict=True))
        write_data(
            files.manifest, Tokenizer.load(Path(files.tokenizer).parent), Path(snakemake.output[0]).parent, copies
        )
