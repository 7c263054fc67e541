"""Rule compare of any study: differences between arms, with intervals."""

from geomix.errors import exit_with_sentence
from geomix.files import write_json
from geomix.settings.instances import study_of
from geomix.studies.comparison import compare_study, judge_hypothesis
from geomix.studies.kinds import KINDS
from geomix.training.results import Study

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        study = study_of(snakemake.config, snakemake.output[0])
        kind = KINDS[study.kind]
        write_json(snakemake.output.comparisons, compare_study(kind, study.folder))
        write_json(snakemake.output.judged, judge_hypothesis(kind, Study.read(study.folder)))
