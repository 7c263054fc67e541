"""Rule espnet_audio: the training audio at one speed, for ESPnet."""

from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import write_speed_copies

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        write_speed_copies(
            snakemake.input.manifest, float(snakemake.wildcards.factor), snakemake.output[0], snakemake.threads
        )
