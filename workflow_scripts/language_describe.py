"""Rule describe_language: what was asked, as the config has it."""

from geomix.errors import exit_with_sentence
from geomix.studies.base import describe
from geomix.studies.language import LANGUAGE

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        describe(LANGUAGE, snakemake.params.study, {}, snakemake.output[0])
