"""Rule average_espnet: ESPnet's average of the best epochs as a model folder."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import EspnetData
from geomix.espnet_track.launch import average
from geomix.training.averaging import Selection

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        selection = Selection(**snakemake.params.selection)
        data = EspnetData.of(snakemake.input)
        average(Path(snakemake.input.epochs), data, Path(snakemake.output.model).parent, selection)
