"""Rule train_espnet: train one arm with ESPnet's trainer, or go on where it was interrupted."""

from pathlib import Path

from geomix.config import about_training
from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import EspnetData
from geomix.espnet_track.launch import train
from geomix.files import read_json

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        train(
            read_json(files.settings),
            EspnetData.of(files, snakemake.params.folder),
            about=about_training(snakemake.config, snakemake.wildcards.arm),
            state_root=Path("state") / snakemake.config["run"],
            out=Path(snakemake.output.record).parent,
            dev_features=Path(files.dev_features),
            threads=snakemake.threads,
            **{key: snakemake.config["training"][key] for key in ("log_every", "device")},
        )
