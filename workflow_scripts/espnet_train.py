"""Rule train_espnet: train one arm with ESPnet's trainer, go on where it was interrupted, or restore a finished training."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import EspnetData
from geomix.espnet_track.launch import train
from geomix.files import folder_of
from geomix.models.arms import check_arm
from geomix.settings import about_training, training_settings
from geomix.training.averaging import Selection
from geomix.training.record import About

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        config, arm = snakemake.config, snakemake.wildcards.arm
        training = config["training"]
        check_arm(config, arm, snakemake.input.tokens)
        train(
            training_settings(config, arm, int(snakemake.wildcards.seed), "espnet"),
            EspnetData.of(snakemake.input),
            about=About(**about_training(config, arm)),
            out=folder_of(*snakemake.output),
            dev_features=Path(snakemake.input.dev_features),
            selection=Selection(training["keep_best"], training["best_by"]),
            threads=snakemake.threads,
            **{key: training[key] for key in ("log_every", "device")},
        )
