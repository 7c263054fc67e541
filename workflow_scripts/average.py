"""Rule average: the mean of the best epochs' weights as a model folder."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.speech.training_task import average_arm

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        average_arm(
            Path(snakemake.input.epochs), Path(snakemake.input.tokenizer).parent, Path(snakemake.output.model).parent
        )
