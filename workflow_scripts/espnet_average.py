"""Rule average_espnet: ESPnet's average of the best epochs as a model folder."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import EspnetData
from geomix.espnet_track.launch import average

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        data = EspnetData(
            Path(snakemake.input.corpus), Path(snakemake.params.folder), Path(snakemake.input.tokens).parent
        )
        average(Path(snakemake.input.epochs), data, Path(snakemake.output.model).parent)
