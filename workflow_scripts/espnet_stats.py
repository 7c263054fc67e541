"""Rule espnet_stats: ESPnet's collect-stats."""

from geomix.errors import exit_with_sentence
from geomix.espnet_track.data import EspnetData
from geomix.espnet_track.launch import collect_stats

if __name__ == "__main__":
    with exit_with_sentence(snakemake.log[0]):
        data = EspnetData.of(snakemake.input, stats=snakemake.output.stats)
        collect_stats(data, snakemake.params.mels, snakemake.threads)
