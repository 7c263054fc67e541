"""Rule train_language: train one arm of the language study, go on where it was interrupted, or restore a finished training."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.language.training_task import train_arm
from geomix.settings import language_training_settings

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        language, name = snakemake.config["language"], snakemake.wildcards.arm
        arm, training = language["arms"][name], language["training"]
        train_arm(
            language_training_settings(language, name, int(snakemake.wildcards.seed)),
            Path(snakemake.input[0]).parent,
            about={
                "run": snakemake.config["run"],
                "arm": name,
                "gated": arm["gated"],
                "unmatched": arm["unmatched"],
            },
            out=Path(snakemake.output.record).parent,
            threads=snakemake.threads,
            **{key: training[key] for key in ("detect_after", "save_minutes", "log_every", "device")},
        )
