"""Rule algebra_speech_arm: one arm of phase 3 on the speech corpus of the configuration, all its seeds."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.speech.prepared import PreparedData
from geomix.studies.algebra.speech_models import SELECTION, SpeechJob, run_speech_job
from geomix.training.options import TrainerOptions

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files, params, config = snakemake.input, snakemake.params, snakemake.config
        training = config["training"]
        job = SpeechJob(
            params.settings,
            snakemake.wildcards.arm,
            PreparedData.of(files),
            corpus=config["corpus"]["name"],
            options=TrainerOptions(SELECTION, None, training["save_minutes"], training["log_every"]),
            run=config["algebra"]["run"],
            state=Path("state"),
        )
        tests = zip(map(Path, files.manifests), map(Path, files.features), strict=True)
        run_speech_job(job, params.seeds, dict(zip(params.sets, tests, strict=True)), snakemake.output[0])
