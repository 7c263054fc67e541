"""Rule agreement: what both tracks make of the same data and weights."""

from pathlib import Path

from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import EspnetData
from geomix.espnet_track.launch import agree

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        files = snakemake.input
        agree(
            snakemake.params.settings,
            EspnetData.of(files),
            train_features=[Path(path) for path in files.train_features],
            dev_features=Path(files.dev_features),
            normalisation=Path(files.normalisation),
            out=Path(snakemake.output[0]),
            threads=snakemake.threads,
        )
