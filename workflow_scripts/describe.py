"""Rule describe of any study: what it asks, with the exact size of each arm; an arm of another size is refused here."""

from geomix.errors import exit_with_sentence
from geomix.settings.instances import study_of
from geomix.studies.base import describe
from geomix.studies.kinds import KINDS

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        out, params = snakemake.output[0], snakemake.params
        files = dict(snakemake.input.items()) | {"manifests": params.get("manifests")}
        describe(KINDS[study_of(snakemake.config, out).kind], params.config, files, out)
