"""Rule measure_language_parity: the baseline's validation perplexity against its target."""

from geomix.errors import exit_with_sentence
from geomix.studies.gate import measure_parity
from geomix.studies.language import LANGUAGE

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        params = snakemake.params
        measure_parity(LANGUAGE, params.run, params.gate, params.corpus)
