"""Rule measure_anchor: the word error rates of the gate's own arm beside its targets."""

from geomix.errors import exit_with_sentence
from geomix.studies.gate import measure_anchor
from geomix.studies.speech import SPEECH

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        measure_anchor(SPEECH, snakemake.params.run, snakemake.params.gate)
