"""Rules algebra_inside and algebra_inside_page: phase 4 in the models of phases 2 and 3, and its page."""

from pathlib import Path

from geomix.errors import exit_with_sentence

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        if "markdown" in snakemake.output.keys():
            from geomix.report.algebra.inside import build_inside

            build_inside(Path(snakemake.output.markdown).parent)
        else:
            from geomix.settings.algebra_jobs import speech_phase_study
            from geomix.studies.algebra.inside import look_inside

            inputs = snakemake.input
            studies = {phase: [Path(weights).parent for weights in inputs[phase]] for phase in snakemake.params.phases}
            files = {"text": inputs.text[0], "speech": inputs, "study": speech_phase_study(snakemake.config)}
            look_inside(studies, files, snakemake.output[0])
