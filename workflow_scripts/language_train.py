"""Rule train_language: train one arm of the language study, go on where it was interrupted, or restore a finished training."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.language.training import SELECTION, train_arm
from geomix.settings import language_training_settings
from geomix.training.options import TrainerOptions
from geomix.training.record import About

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        language, name = snakemake.config["language"], snakemake.wildcards.arm
        arm, training = language["arms"][name], language["training"]
        train_arm(
            language_training_settings(language, name, int(snakemake.wildcards.seed)),
            Path(snakemake.input[0]).parent,
            about=About(snakemake.config["run"], name, language["corpus"]["name"], arm["gated"], arm["unmatched"]),
            options=TrainerOptions(
                SELECTION, **{key: training[key] for key in ("detect_after", "save_minutes", "log_every")}
            ),
            out=Path(snakemake.output.record).parent,
            threads=snakemake.threads,
            device=training["device"],
        )
