"""Rule measure_language_parity: the baseline's validation perplexity against the published range."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.files import write_json
from geomix.report.language import measure_parity

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        write_json(snakemake.output[0], measure_parity(Path(snakemake.input.study[0]).parent))
