"""Rule describe_study: what the study is, with the exact size of each arm; an arm of another size is refused here."""

from geomix.errors import exit_with_sentence
from geomix.speech.study import describe_study

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        params = snakemake.params
        describe_study(params.config, snakemake.input.tokens, snakemake.output[0], params.manifests)
