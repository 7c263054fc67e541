"""Rules algebra_costs of phases 2 and 3: what a training step of each arm costs."""

from geomix.errors import exit_with_sentence
from geomix.settings.instances import study_of
from geomix.studies.algebra.costs import measure_costs

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        study = study_of(snakemake.config, snakemake.output[0])
        measure_costs(study.kind, study.config, snakemake.input, snakemake.output[0])
