"""Rule language_gate: fails with the measurement's sentence when the baseline missed and the gate is enforced."""

from geomix.errors import exit_with_sentence
from geomix.report.parity import pass_gate

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        pass_gate(snakemake.input[0])
