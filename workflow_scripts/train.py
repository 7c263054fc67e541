"""Rules train and train_language: train one arm to the end, go on where it was interrupted, or restore a finished training."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.settings.instances import study_of
from geomix.studies.kinds import KINDS

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        names, out = snakemake.wildcards, Path(snakemake.output.record)
        study = study_of(snakemake.config, out)
        KINDS[study.kind].train(
            study.config,
            names.get("track", ""),
            names.arm,
            int(names.seed),
            snakemake.input,
            out.parent,
            snakemake.threads,
        )
