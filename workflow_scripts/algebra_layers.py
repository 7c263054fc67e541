"""Rules algebra_adoption, algebra_nonlinearities and algebra_layers: multivector layers in trained models, and the page of both."""

from pathlib import Path

from geomix.errors import exit_with_sentence

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        out, params = Path(snakemake.output[0]), snakemake.params
        if out.stem == "adoption":
            from geomix.studies.algebra.adoption import run_adoption

            folders = [Path(weights).parent for weights in snakemake.input.weights]
            run_adoption(folders, Path(snakemake.input.text[0]).parent, params.training, params.settings, out)
        elif out.stem == "nonlinearities":
            from geomix.studies.algebra.nonlinearities import run_nonlinearities

            run_nonlinearities(params.settings, out)
        else:
            from geomix.report.algebra.layers import build_layers

            build_layers(out.parent)
