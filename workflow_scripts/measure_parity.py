"""Rule measure_parity: the baseline's word error rates beside the published ones."""

from geomix.errors import exit_with_sentence
from geomix.studies.gate import measure_parity
from geomix.studies.speech import SPEECH

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        measure_parity(SPEECH, snakemake.params.run, snakemake.params.gate)
