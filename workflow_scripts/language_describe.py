"""Rule describe_language: what was asked, as the config has it."""

from geomix.errors import exit_with_sentence
from geomix.files import write_json

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        write_json(snakemake.output[0], snakemake.params.study)
