"""Rule measure_language_parity: the baseline's validation perplexity against its target."""

from geomix.errors import exit_with_sentence
from geomix.report.language import measure_parity

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        measure_parity(snakemake.params.run, snakemake.params.gate, snakemake.params.corpus)
