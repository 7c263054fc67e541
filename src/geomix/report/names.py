"""Names of the figures that a report writes, known from the configuration alone, so that a rule can declare each file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geomix.settings import is_speech

FORMS = ("svg", "png")
SPEECH_FIGURES = ("wer", "training", "cost", "pairs")
LANGUAGE_FIGURES = ("perplexity", "training", "pairs")
ANATOMY, DIAL = "anatomy", "anatomy_dial"
"""The page of `geomix anatomy` and its figure, in the run's own folder."""
ALL_FIGURES = tuple(dict.fromkeys((*SPEECH_FIGURES, *LANGUAGE_FIGURES)))


def figure_names(study: Mapping[str, Any]) -> list[str]:
    """Names of the figures of a study's report, in the page's order; each is written as NAME.svg and NAME.png (`FORMS`).

    `study` is the configuration or a study.json: for the speech study with arms and study {arms, tracks}, for the
    language study the section `language` with arms and study {arms}. `pairs` is there when an arm of the study is a pair
    mixer; every other figure always is, with a sentence in it where nothing has been trained that it could show.
    """
    names = SPEECH_FIGURES if is_speech(study) else LANGUAGE_FIGURES
    pairs = any(study["arms"].get(arm, {}).get("mixer") == "pair" for arm in study["study"]["arms"])
    return [name for name in names if pairs or name != "pairs"]


def figure_files(study: Mapping[str, Any]) -> list[str]:
    """The files of `figure_names`, `wer.svg`, `wer.png`, ...: what lies in the folder `figures` beside the tables."""
    return [f"{name}.{form}" for name in figure_names(study) for form in FORMS]


PHASES = {
    "representation": "phase 1, does a Clifford table beat shuffled signs?",
    "truncation": "phase 1, how many grades must an algebra keep?",
    "components": "phase 2, one component of a Transformer at a time",
    "layers": "multivector layers in trained scalar models, and their nonlinearities",
    "architectures": "phase 3, feed-forward maps at equal parameters",
    "speech": "phase 3, the same maps in a small Conformer on the demo's corpus",
    "interpretability": "phase 4, do the grades mean something?",
    "inside": "phase 4, inside the trained models of phases 2 and 3",
}
"""The algebra study's pages, NAME.md and NAME.json, in the order of its phases, and what each asks."""
