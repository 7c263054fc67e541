"""Rule train_language: train one arm of the language study, go on where it was interrupted, or restore a finished training."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.studies.language import LANGUAGE

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        arm, seed, out = snakemake.wildcards.arm, int(snakemake.wildcards.seed), Path(snakemake.output.record).parent
        config = {**snakemake.config["language"], "run": snakemake.config["run"]}
        LANGUAGE.train(config, None, arm, seed, snakemake.input, out, snakemake.threads)
