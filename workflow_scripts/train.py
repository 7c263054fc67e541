"""Rule train: train one arm of the own track to the end, or go on where it was interrupted."""

from pathlib import Path

from geomix.config import about_training
from geomix.errors import exit_with_sentence
from geomix.files import read_json
from geomix.speech.training_task import PreparedData, train_arm

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        train_arm(
            read_json(files.settings),
            PreparedData.of(files),
            about=about_training(snakemake.config, snakemake.wildcards.arm),
            state_root=Path("state") / snakemake.config["run"],
            out=Path(snakemake.output.record).parent,
            threads=snakemake.threads,
            **{key: snakemake.config["training"][key] for key in ("save_minutes", "log_every", "device")},
        )
