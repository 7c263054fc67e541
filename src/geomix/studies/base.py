"""What a study is, whatever it studies: a domain gives its data, its task and its metric as a `Kind`.

`gate` measures the baseline and stops what must wait for it, `comparison` compares the arms, `kinds` knows the kinds by name.
None of this loads torch; a kind's `train` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix.files import write_json
from geomix.statistics import GateVerdict
from geomix.training.results import Study, Trained


@dataclass(frozen=True)
class Judged:
    """A gate's verdict on what was measured; `said` is what anchor.json and parity.json hold of the targets."""

    verdict: GateVerdict
    said: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What trainings are judged and compared by.

    name : in a person's words; less of it is better
    file : what the comparison reads in the folder of a training; `{set}` stands for the evaluation set
    read : a training and a set -> the measurement that `compare` takes
    value : a training and a set -> the number that the gate judges
    judged_sets : an anchor of the configuration's gate -> the sets on which it has a target
    judge : an anchor, {set: mean of `value` over its seeds} and the name of the corpus -> verdict
    compare : {seed: measurement} of arm a and of arm b, their names, the study -> an entry of comparisons.json less what
        names the contrast; it has verdict, warnings and, where there is a test, p
    corrected : whether the p of the planned contrasts of a track on its test sets are corrected (Holm) together
    """

    name: str
    file: str
    read: Callable[[Trained, str], Any]
    value: Callable[[Trained, str], float]
    judged_sets: Callable[[Mapping[str, Any]], Sequence[str]]
    judge: Callable[[Mapping[str, Any], Mapping[str, float], str], Judged]
    compare: Callable[[Mapping[int, Any], Mapping[int, Any], tuple[str, str], Study], dict[str, Any]]
    corrected: bool = False


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What makes a study of one domain.

    train : (configuration of the study, track, arm, seed, prepared files, folder of the training, threads): trains to the end
        and writes what the rule declares
    described : (configuration, prepared files) -> what study.json says beside the configuration, an arm's exact size for example;
        a study that may not run as it stands is refused here
    """

    name: str
    metric: Metric
    train: Callable[[Mapping[str, Any], str | None, str, int, Any, Path, int], Any]
    described: Callable[[Mapping[str, Any], Any], Mapping[str, Any]] = lambda config, files: {}


def describe(kind: Kind, config: Mapping[str, Any], files: Any, out: str | Path) -> dict[str, Any]:
    """Write study.json: the parts of the configuration that say what is asked, and what the kind adds."""
    description = {**config, **kind.described(config, files)}
    write_json(out, description)
    return description
