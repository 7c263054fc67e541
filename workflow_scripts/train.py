"""Rule train: train one arm of the own track to the end, go on where it was interrupted, or restore a finished training."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.studies.speech import SPEECH

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        arm, seed, out = snakemake.wildcards.arm, int(snakemake.wildcards.seed), Path(snakemake.output.record).parent
        SPEECH.train(snakemake.config, "own", arm, seed, snakemake.input, out, snakemake.threads)
