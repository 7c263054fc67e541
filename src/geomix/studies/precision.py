"""What the contrasts of a speech study will be able to show, before it runs: for each test set, from its speakers and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from geomix.errors import UserError
from geomix.settings import evaluation_sets, stages
from geomix.speech.manifest import read_manifest
from geomix.speech.scoring import by_speaker, read_score
from geomix.statistics.verdicts import Components, components, smallest_difference, smallest_margin
from geomix.training.results import WER, Study, studies_in

DEFAULT = Components(seed=0.3**2, speaker=1.0**2, interaction=0.8**2)
"""An assumption where no run of the corpus is recorded: standard deviations of 0.3, 1.0 and 0.8 points of WER."""

_LIBRISPEECH_SPEAKERS = {"dev-clean": 40, "dev-other": 33, "test-clean": 40, "test-other": 33}


@dataclass(frozen=True)
class Precision:
    """Smallest difference and smallest margin of equality (points, 80 % power) of two arms with `seeds` seeds each.

    `more_seeds` and `more_speakers` are the same with two more seeds and with twice the speakers. `basis` says where the
    variance components come from.
    """

    set: str
    speakers: int
    seeds: int
    basis: str
    now: tuple[float, float]
    more_seeds: tuple[float, float]
    more_speakers: tuple[float, float]


def expected_precision(config: Mapping[str, Any], root: Path = Path(".")) -> list[Precision]:
    """Of each test set whose speakers are known, from the prepared manifest or because it is LibriSpeech's."""
    dev, found = config["corpus"]["dev"], []
    seeds = len(config["study"]["seeds"])
    for name in evaluation_sets(config):
        if (isinstance(dev, list) and name in dev) or not (speakers := speakers_of(config, name, root)):
            continue
        known, basis = recorded(config, name, root)
        at = lambda s, k, known=known: _shown(*known.precision(s, k))
        more = at(max(seeds, 1) + 2, speakers), at(seeds, 2 * speakers)
        found.append(Precision(name, speakers, seeds, basis, at(seeds, speakers), *more))
    return found


def _shown(standard_error: float, df: float) -> tuple[float, float]:
    return smallest_difference(standard_error, df), smallest_margin(standard_error, df)


def speakers_of(config: Mapping[str, Any], name: str, root: Path) -> int | None:
    """Speakers of a set; None while it is not prepared and not LibriSpeech's."""
    folder = root / "data" / config["corpus"]["name"] / f"{name}-{stages.split_key(config, name)}"
    manifest = folder / "manifest" / f"{name}.tsv"
    if manifest.is_file():
        return len({utterance.speaker for utterance in read_manifest(manifest)})
    return _LIBRISPEECH_SPEAKERS.get(name) if config["corpus"]["kind"] == "librispeech" else None


def recorded(config: Mapping[str, Any], name: str, root: Path) -> tuple[Components, str]:
    """Mean variance components over the pairs of arms of the recorded run of this corpus that comes nearest to the gate's target.

    Without a target the best run counts; without a run the assumption `DEFAULT`.
    """
    targets = {target["set"]: target["wer"] for target in (config["gate"] or {}).get("targets", ())}
    runs = list(_runs(config["corpus"]["name"], name, root))
    if not runs:
        return DEFAULT, "an assumption: no run of this corpus is recorded"
    wer, known, where = min(runs, key=lambda run: abs(run[0] - targets.get(name, 0.0)))
    return known, f"{where}, WER {wer:.1f} %"


def _runs(corpus: str, name: str, root: Path) -> Iterator[tuple[float, Components, str]]:
    """(mean WER, components, folder) of each recorded run with two arms of two seeds on a set."""
    for folder in sorted([*(root / "results").glob("*"), *(root / "results" / "published").glob("*")]):
        for place in studies_in(folder):
            try:
                study = Study.read(place)
                if study.metric == WER and study.corpus == corpus and name in study.sets:
                    yield from _of_run(study, name)
            except UserError:
                continue  # a run that is not finished, or of an older form


def _of_run(study: Study, name: str) -> Iterator[tuple[float, Components, str]]:
    scores = {
        arm: [read_score(t.score_path(name)) for t in study.of(study.tracks[0], arm)]
        for arm in study.arms
        if all(t.score_path(name).is_file() for t in study.of(study.tracks[0], arm))
    }
    found = []
    for a, b in combinations([arm for arm, of in scores.items() if len(of) > 1], 2):
        errors, words = by_speaker(
            [*scores[a], *scores[b]], [f"{arm} {i}" for arm in (a, b) for i in range(len(scores[arm]))]
        )
        found.append(components(errors[: len(scores[a])], errors[len(scores[a]) :], words))
    if found := [each for each in found if each]:
        mean = Components(*np.mean([[c.seed, c.speaker, c.interaction] for c in found], axis=0).tolist())
        yield float(np.mean([s.words.rate for of in scores.values() for s in of])), mean, str(study.folder)
