"""Rule normalisation: mean and variance of all training frames."""

from geomix.errors import exit_with_sentence
from geomix.speech.features import FeatureStore, write_normalisation

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        prefixes = [path.rpartition(".")[0] for path in snakemake.input]
        write_normalisation(snakemake.output[0], FeatureStore.open(*prefixes))
