"""Rule measure_parity of any study: the gate's arm, and its fallback where that missed, beside their targets."""

from geomix.errors import exit_with_sentence
from geomix.settings.instances import study_of
from geomix.studies.gate import measure_parity
from geomix.studies.kinds import KINDS

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        study, params = study_of(snakemake.config, snakemake.output[0]), snakemake.params
        measure_parity(KINDS[study.kind], params.run, params.gate, study.config["corpus"]["name"])
