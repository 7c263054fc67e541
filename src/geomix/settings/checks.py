"""Checks between sections of a resolved configuration: names that must exist, what cannot be together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from geomix.errors import UserError
from geomix.mixers.own.source import is_own
from geomix.mixers.registry import arguments_of
from geomix.settings.algebra import INSPECTED_ARMS, INSPECTED_TASKS
from geomix.settings.algebra_jobs import phase_study, speech_phase_study
from geomix.settings.explain import suggest
from geomix.settings.predicates import PredicateError, parse
from geomix.settings.replacements import replacements_of, split_replaced
from geomix.settings.sizes import check_replaced
from geomix.settings.trainings import (
    E_BRANCHFORMER,
    evaluation_sets,
    granite_rows,
    language_model_of,
    language_training_settings,
    settings_hash,
    taken_of_model,
    training_settings,
    trainings_of,
)

# what results/ holds beside a folder a run
RESULT_NAMES = ("README.md", "bench", "speed", "published")
# what results/<run>/language holds beside a folder an arm
LANGUAGE_RESULT_NAMES = (
    "study.json", "costs.json", "parity.json", "parity.passed", "tables.csv", "tables.md", "comparisons.json", "figures",
)  # fmt: skip


def check_config(config: Mapping[str, Any]) -> None:
    """Refuse a resolved configuration that cannot be run; `UserError` names the key, the value and the cure."""
    _check_names(config)
    _check_gate(config)
    _check_runs(config)
    _check_start(config)
    _check_speech_arms("arms", config)
    _check_language("language", config["language"])
    _check_algebra(config)
    _check_equal_arms(config)


def _known(where: str, names: Iterable[str], known: Iterable[str], what: str = "among the arms") -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise UserError(f"config: {where} names {name!r}, which is not {what}: {suggest(name, known)}")


def _check_names(config: Mapping[str, Any]) -> None:
    arms, planned = config["arms"], config["comparison"]["planned"]
    _known("study.arms", config["study"]["arms"], arms)
    _known("comparison.planned", [name for pair in planned for name in pair], arms)
    check_planned("comparison.planned", planned)
    _check_hypothesis("hypothesis", config["hypothesis"], arms)
    spelt: dict[str, str] = {}
    for name in config["study"]["arms"]:
        if (other := spelt.setdefault(name.lower(), name)) != name:
            raise UserError(
                f"config: study.arms has {other!r} and {name!r}, one folder where capitals do not count: rename one"
            )
        if arms[name].get("architecture") == E_BRANCHFORMER:
            raise UserError(
                f"config: study.arms names {name!r}, a model of ESPnet's alone, which serves as an anchor: name it in gate.fallback"
            )
    rows = [row for row, _, _ in granite_rows(config)]
    if repeated := [row for row in rows if rows.count(row) > 1]:
        raise UserError(
            f"config: granite.checkpoints has two rows named {repeated[0]!r} (a CTC head's row ends in -ctc): rename one"
        )


def _check_hypothesis(where: str, expectations: Iterable[Mapping[str, Any]], arms: Iterable[str]) -> None:
    for number, expectation in enumerate(expectations, 1):
        if expectation["holds"] is not None:
            try:
                parse(expectation["holds"], arms)
            except PredicateError as error:
                raise UserError(f"config: {where}, item {number}: {error}") from None


def check_planned(where: str, pairs: list[list[str]]) -> None:
    """Refuse a contrast of an arm with itself and one that is listed twice, in either order; `where` is the list's key."""
    seen: set[frozenset[str]] = set()
    for a, b in pairs:
        if a == b:
            raise UserError(f"config: {where}: [{a}, {b}] compares an arm with itself: name two arms")
        if {a, b} in seen:
            raise UserError(f"config: {where}: [{a}, {b}] is listed twice: leave one out")
        seen.add(frozenset((a, b)))


def _check_gate(config: Mapping[str, Any]) -> None:
    arms, gate, sets = config["arms"], config["gate"], evaluation_sets(config)
    if gate is None:
        return
    for where, anchor in (("gate", gate), ("gate.fallback", gate["fallback"])):
        if anchor is None:
            continue
        _known(f"{where}.arm", [anchor["arm"]], arms)
        if arms[anchor["arm"]]["gated"]:
            raise UserError(f"config: arms.{anchor['arm']}.gated: {where}'s own arm cannot wait for the gate")
        if arms[anchor["arm"]].get("architecture") == E_BRANCHFORMER and anchor["track"] != "espnet":
            raise UserError(
                f"config: {where}.track {anchor['track']!r}: arm {anchor['arm']!r} exists on the track espnet alone"
            )
        names = [target["set"] for target in anchor["targets"]]
        inherited = " (set gate.fallback: null if the study has no fallback)" if where == "gate.fallback" else ""
        for name in names:
            if name not in sets:
                raise UserError(
                    f"config: {where}.targets names {name!r}, which is not an evaluation set: {suggest(name, sets)}{inherited}"
                )
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UserError(f"config: {where}.targets names {repeated[0]!r} twice: leave one out")


def _check_runs(config: Mapping[str, Any]) -> None:
    for where, run in (("run", config["run"]), ("algebra.run", config["algebra"]["run"])):
        if run in RESULT_NAMES:
            raise UserError(f"config: {where}: results/{run} holds something else: give the run another name")
    if config["algebra"]["run"] == config["run"]:
        raise UserError(f"config: run and algebra.run are both {config['run']!r}: give them different names")
    if config["study"]["arms"] and "train" in evaluation_sets(config):
        raise UserError("config: corpus.test has a set called train: give it another name")
    if config["corpus"]["min_seconds"] > config["corpus"]["max_seconds"]:
        raise UserError(
            f"config: corpus.min_seconds {config['corpus']['min_seconds']:g} is more than max_seconds "
            f"{config['corpus']['max_seconds']:g}, which leaves no utterance to train on: lower it"
        )
    test, dev = config["corpus"]["test"], config["corpus"]["dev"]
    if "dev" in test and dev != (test["dev"] if isinstance(test, Mapping) else ["dev"]):
        raise UserError("config: corpus.test has a set called dev that is not corpus.dev: give it another name")


def _check_start(config: Mapping[str, Any]) -> None:
    if config["training"]["init_from"] and "espnet" in config["study"]["tracks"]:
        raise UserError(
            f"config: training.init_from {config['training']['init_from']!r}: trainings of the track espnet start from initial "
            "weights: take espnet out of study.tracks"
        )


def _check_language(where: str, language: Mapping[str, Any]) -> None:
    """Refuse a language study that cannot be run; `where` is the key of its section."""
    arms, gate, planned = language["arms"], language["gate"], language["comparison"]["planned"]
    if not arms:
        return
    study = language["study"]
    _known(f"{where}.study.arms", study["arms"], arms)
    if study["baseline"] is not None:
        _known(f"{where}.study.baseline", [study["baseline"]], study["arms"], "among the study's arms")
    _known(f"{where}.comparison.planned", [name for pair in planned for name in pair], arms)
    check_planned(f"{where}.comparison.planned", planned)
    _check_hypothesis(f"{where}.hypothesis", language["hypothesis"], arms)
    if gate is not None:
        _known(f"{where}.gate.arm", [gate["arm"]], arms)
        if arms[gate["arm"]].get("gated"):
            raise UserError(f"config: {where}.arms.{gate['arm']}.gated: the gate's own arm cannot wait for it")
        low, high = gate["low"], gate["high"]
        if low is not None and high is not None and low > high:
            raise UserError(
                f"config: {where}.gate.low {low} is above {where}.gate.high {high}: no perplexity could pass"
            )
    for name in dict.fromkeys([*language["study"]["arms"], *([gate["arm"]] if gate else [])]):
        arm = dict(arms[name])
        _check_language_arm(f"{where}.arms.{name}", name, arm, language_model_of(language, arm))


def _check_language_arm(where: str, name: str, arm: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Refuse an arm that is named as a result file, has a pair that no block of tokens holds, or what does not fit the width."""
    if name in LANGUAGE_RESULT_NAMES:
        raise UserError(f"config: {where}: {name} is taken in the folder of the results: give the arm another name")
    if arm["mixer"] == "pair" and (beyond := [k for k in arm["offsets"] if k >= model["positions"]]):
        raise UserError(
            f"config: {where}.offsets: {beyond[0]} does not fit into blocks of {model['positions']} tokens: choose smaller "
            "offsets or raise language.model.positions"
        )
    _check_parts(where, arm, model.get("replaced", {}), model, "language.model.width", causal=True)


def _check_speech_arms(where: str, config: Mapping[str, Any]) -> None:
    """Arguments must fit the width: said before data are prepared, not by the first training."""
    for name in config["study"]["arms"]:
        if "architecture" not in config["arms"][name]:
            arm = dict(config["arms"][name])
            model = {**config["model"], **taken_of_model(arm)}
            _check_parts(f"{where}.{name}", arm, split_replaced(arm), model, "model.width")


def _check_parts(
    where: str,
    mixer: Mapping[str, Any],
    replaced: Mapping[str, Any],
    model: Mapping[str, Any],
    named: str,
    *,
    causal: bool = False,
) -> None:
    """An arm's mixer, and what else it replaces, must fit the width, whose key is `named`."""
    try:
        if not is_own(mixer["mixer"]):
            arguments_of(mixer, causal=causal).check(model["width"], named)
        check_replaced(replacements_of(replaced), model["width"], mixer.get("ff_dim") or model["ff_dim"], mixer)
    except UserError as error:
        raise UserError(f"config: {where}.{error}") from None


def _check_algebra(config: Mapping[str, Any]) -> None:
    """Refuse an `algebra` section whose phases need what phase 1 does not run, or that no study could be made of."""
    algebra = config["algebra"]
    phase1 = algebra["representation"]
    if missing := [task for task in INSPECTED_TASKS if task not in phase1["tasks"]]:
        raise UserError(
            f"config: algebra.representation.tasks leaves out {', '.join(missing)}, whose models phase 4 looks into: add them"
        )
    if missing := [arm for arm in (*INSPECTED_ARMS, "gauge", "all_plus") if arm not in phase1["arms"]]:
        raise UserError(
            f"config: algebra.representation.arms leaves out {', '.join(missing)}, which the decision rule or phase 4 needs: add them"
        )
    for phase in ("components", "architectures"):
        _check_language(f"algebra.{phase}", phase_study(config, phase))
    if speech := speech_phase_study(config):
        _known("algebra.speech.study.arms", speech["study"]["arms"], speech["arms"])
        if "wide_scalar" not in speech["study"]["arms"]:
            raise UserError(
                "config: algebra.speech.study.arms leaves out 'wide_scalar', the baseline of its page: add it"
            )
        planned = speech["comparison"]["planned"]
        _known("algebra.speech.comparison.planned", [name for pair in planned for name in pair], speech["arms"])
        check_planned("algebra.speech.comparison.planned", planned)
        _check_speech_arms("algebra.speech.arms", speech)


def _check_equal_arms(config: Mapping[str, Any]) -> None:
    """Two arms of one study that are the same training would be compared with themselves."""
    speech = [("study.arms", config), ("algebra.speech.study.arms", speech_phase_study(config))]
    studies = [
        (where, trainings_of(of["study"]), lambda t, a, s, of=of: training_settings(of, a, s, t))
        for where, of in speech
        if of
    ]
    language = [("language", config["language"])]
    language += [(f"algebra.{phase}", phase_study(config, phase)) for phase in ("components", "architectures")]
    for where, of in language:
        runs = [("language", arm, 0) for arm in of["study"]["arms"]] if of["arms"] else []
        studies.append((f"{where}.study.arms", runs, lambda t, a, s, of=of: language_training_settings(of, a, s)))
    for where, trainings, settings_of in studies:
        seen: dict[str, str] = {}
        for track, arm, seed in trainings:
            other = seen.setdefault(settings_hash(settings_of(track, arm, seed), {}), arm)
            if other != arm:
                raise UserError(
                    f"config: {where}: {other} and {arm} are the same training under two names: leave one out, or change one"
                )
