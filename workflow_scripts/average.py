"""Rule average: the mean of the best epochs' weights as a model folder."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.files import folder_of
from geomix.speech.training import average_arm
from geomix.training.averaging import Selection

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        selection = Selection(**snakemake.params.selection)
        average_arm(
            Path(files.epochs), folder_of(files.tokenizer, files.tokens), folder_of(*snakemake.output), selection
        )
