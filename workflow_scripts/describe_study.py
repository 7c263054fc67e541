"""Rule describe_study: what the study is, with the exact size of each arm; an arm of another size is refused here."""

from geomix.errors import exit_with_sentence
from geomix.studies.base import describe
from geomix.studies.speech import SPEECH

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        params = snakemake.params
        files = {"tokens": snakemake.input.tokens, "manifests": params.manifests}
        describe(SPEECH, params.config, files, snakemake.output[0])
