"""Rule features: the log-mel frames of one split at one speed."""

from geomix.errors import exit_with_sentence
from geomix.speech.features import write_features
from geomix.speech.manifest import read_manifest

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        factor = float(snakemake.wildcards.factor)
        write_features(
            [utterance for utterance in read_manifest(snakemake.input.manifest) if utterance.speed == factor],
            snakemake.output.frames.rpartition(".")[0],
            dtype=snakemake.params.features["dtype"],
            threads=snakemake.threads,
        )
