"""Rule algebra_language: one arm of phase 2 or 3, all its seeds."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.studies.algebra.architectures import run_architecture
from geomix.studies.algebra.components import run_component

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        run = {"components": run_component, "architectures": run_architecture}[snakemake.wildcards.phase]
        algebra = snakemake.config["algebra"]
        run(
            snakemake.params.settings,
            Path(snakemake.input[0]).parent,
            run=algebra["run"],
            state="state",
            log_every=algebra["language"]["training"]["log_every"],
            out=snakemake.output[0],
        )
