"""Rule train: train one arm of the own track to the end, or go on where it was interrupted."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.files import read_json
from geomix.speech.training_task import PreparedData, train_arm

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        train_arm(
            read_json(files.settings),
            PreparedData(
                corpus=Path(files.corpus),
                train_manifest=Path(files.train_manifest),
                train_features=[Path(path) for path in files.train_features],
                dev_manifests=[Path(files.dev_manifest)],
                dev_features=[Path(files.dev_features)],
                normalisation=Path(files.normalisation),
                tokenizer=Path(files.tokenizer).parent,
            ),
            about={
                "run": snakemake.config["run"],
                "corpus": snakemake.config["corpus"]["name"],
                "arm": snakemake.wildcards.arm,
                "gated": snakemake.config["arms"][snakemake.wildcards.arm].get("gated"),
                "unmatched": snakemake.config["arms"][snakemake.wildcards.arm].get("unmatched"),
            },
            state_root=Path("state") / snakemake.config["run"],
            out=Path(snakemake.output.record).parent,
            threads=snakemake.threads,
            **{key: snakemake.config["training"][key] for key in ("save_minutes", "log_every", "device")},
        )
