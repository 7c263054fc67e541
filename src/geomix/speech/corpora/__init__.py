"""Corpora: each kind is read by one module of this package, and each split leaves as a manifest of one form.

A corpus is the configuration's section:

    name: an4                          # names the folder data/<name>
    kind: folder                       # librispeech, folder, kaldi, manifest, smoke or demo
    path: ../shared/data/an4           # where it lies (smoke and demo: where `generate_corpus` has written it)
    train: [train]                     # splits of the corpus whose union is the split `train`
    dev: [dev-clean, dev-other]        # the same for `dev`, or {hold_out_speakers: [...]}: taken out of train
    test: [test]                       # each is a split of its own name; or {NAME: {hold_out_speakers: [...]}}
    expected: {train: {utterances: 948, speakers: 74}}    # counts to assert, before any dropping or holding out
    speed_factors: [0.9, 1.0, 1.1]     # train holds one copy of each utterance per factor
    min_seconds: 0.1                   # utterances of train and dev outside these bounds are dropped
    max_seconds: 30.0

    resample: false                    # other rates and channels are brought to 16 kHz and one channel
    allow_pipes: false                 # commands of a Kaldi wav.scp run
    normaliser: none                   # of `speech.normalisers`, applied to every transcript

`prepare_split` prepares one split and reads only what that split needs; `check_corpus` compares the prepared splits and
writes the corpus's summary; `stale_sources` says which files of a prepared split have changed since.

A kind is a module with `read_split(corpus, split, faults) -> list[Recording]`, which tells `faults` what is wrong, `listings(corpus, split) -> list[Path]` (the
files that `read_split` reads transcripts and tables from) and, where counts are published, `published(name) -> {split:
{utterances:, speakers:, words:, characters:}}`.
"""

from geomix.speech.corpora.checks import check_corpus
from geomix.speech.corpora.preparation import generate_corpus, prepare_split
from geomix.speech.corpora.sources import stale_sources
from geomix.speech.corpora.splits import KINDS

__all__ = ["KINDS", "check_corpus", "generate_corpus", "prepare_split", "stale_sources"]
