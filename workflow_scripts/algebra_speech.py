"""Rule algebra_speech_arm: one arm of phase 3 on the speech corpus of the configuration, all its seeds."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.speech.training_task import PreparedData
from geomix.studies.algebra.speech_models import run_speech_arm

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files, params = snakemake.input, snakemake.params
        run_speech_arm(
            params.settings,
            snakemake.wildcards.arm,
            params.seeds,
            PreparedData.of(files),
            dict(
                zip(params.sets, zip(map(Path, files.manifests), map(Path, files.features), strict=True), strict=True)
            ),
            run=snakemake.config["algebra"]["run"],
            state="state",
            out=snakemake.output[0],
        )
