"""The configuration as types, without torch: sections with their defaults, overlays, checks, resolution and the hash of a training.

`load` reads files and `resolve` takes a merged dictionary, as Snakemake has it; both return the same resolved
configuration or raise the same sentence.
"""

from geomix.settings.config import Config, load, merge, read_layer, resolve
from geomix.settings.stages import corpus_at
from geomix.settings.trainings import (
    BASELINE,
    E_BRANCHFORMER,
    ESPNET_VERSION,
    about_training,
    evaluation_sets,
    granite_rows,
    is_speech,
    language_training_settings,
    language_trainings_of,
    seeds_of,
    settings_hash,
    training_settings,
    trainings_of,
)

__all__ = [
    "BASELINE",
    "E_BRANCHFORMER",
    "ESPNET_VERSION",
    "Config",
    "about_training",
    "corpus_at",
    "evaluation_sets",
    "granite_rows",
    "language_training_settings",
    "language_trainings_of",
    "load",
    "merge",
    "read_layer",
    "resolve",
    "is_speech",
    "seeds_of",
    "settings_hash",
    "training_settings",
    "trainings_of",
]
