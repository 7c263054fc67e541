"""Rule average_espnet: ESPnet's average of the best epochs as a model folder."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.launch import average
from geomix.files import folder_of
from geomix.training.averaging import Selection

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        selection = Selection(**snakemake.params.selection)
        average(Path(files.epochs), folder_of(files.tokenizer, files.tokens), folder_of(*snakemake.output), selection)
