"""Rule compare: differences between arms, with intervals."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.files import write_json
from geomix.studies.comparison import compare_study
from geomix.studies.speech import SPEECH

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        write_json(snakemake.output[0], compare_study(SPEECH, Path(snakemake.input.study).parent))
