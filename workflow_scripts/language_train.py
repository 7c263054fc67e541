"""Rule train_language: train one arm of the language study to the end, or go on where it was interrupted."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.files import read_json
from geomix.language.training_task import train_arm

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        language = snakemake.config["language"]
        arm = language["arms"][snakemake.wildcards.arm]
        train_arm(
            read_json(snakemake.input.settings),
            Path(snakemake.input[0]).parent,
            about={
                "run": snakemake.config["run"],
                "arm": snakemake.wildcards.arm,
                "gated": arm.get("gated"),
                "unmatched": arm.get("unmatched"),
            },
            state_root=Path("state") / snakemake.config["run"],
            out=Path(snakemake.output.record).parent,
            threads=snakemake.threads,
            **{key: language["training"][key] for key in ("save_minutes", "log_every", "device")},
        )
