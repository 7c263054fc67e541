"""Rule measure_anchor: the word error rates of the gate's own arm beside its targets."""

from geomix.errors import exit_with_sentence
from geomix.report.parity import measure_anchor

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        measure_anchor(snakemake.params.run, snakemake.params.gate)
