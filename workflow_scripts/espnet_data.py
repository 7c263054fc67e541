"""Rule espnet_data: ESPnet's data folders of all splits."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import write_data
from geomix.speech.tokenizer import Tokenizer

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        tokenizer = Tokenizer.load(Path(snakemake.input.tokenizer).parent)
        for manifest in snakemake.input.manifests:
            write_data(
                manifest,
                tokenizer,
                Path(snakemake.params.folder) / Path(manifest).stem,
                dict(zip(snakemake.params.factors, snakemake.input.audio, strict=True)),
            )
