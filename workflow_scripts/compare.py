"""Rule compare of any study: differences between arms, with intervals."""

from geomix.errors import exit_with_sentence
from geomix.files import write_json
from geomix.settings.instances import study_of
from geomix.studies.comparison import compare_study
from geomix.studies.kinds import KINDS

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        study = study_of(snakemake.config, snakemake.output[0])
        write_json(snakemake.output[0], compare_study(KINDS[study.kind], study.folder))
