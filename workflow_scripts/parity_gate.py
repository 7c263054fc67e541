"""Rule parity_gate of any study: fails with a sentence when the baseline missed its target."""

from geomix.errors import exit_with_sentence
from geomix.studies.gate import pass_gate

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        pass_gate(snakemake.input[0])
