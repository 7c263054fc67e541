"""Rule train: train one arm of the own track to the end, go on where it was interrupted, or restore a finished training."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.models.arms import check_arm
from geomix.settings import about_training, training_settings
from geomix.speech.prepared import PreparedData
from geomix.speech.training import train_arm
from geomix.training.averaging import Selection
from geomix.training.options import TrainerOptions
from geomix.training.record import About

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        config, arm = snakemake.config, snakemake.wildcards.arm
        training = config["training"]
        check_arm(config, arm, snakemake.input.tokens)
        train_arm(
            training_settings(config, arm, int(snakemake.wildcards.seed), "own"),
            PreparedData.of(snakemake.input),
            about=About(**about_training(config, arm)),
            options=TrainerOptions(
                Selection(training["keep_best"], training["best_by"]),
                **{key: training[key] for key in ("detect_after", "save_minutes", "log_every")},
            ),
            out=Path(snakemake.output.record).parent,
            threads=snakemake.threads,
            device=training["device"],
        )
