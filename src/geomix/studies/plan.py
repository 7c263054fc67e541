"""What a speech study will cost before it starts: trainings in their order, device hours, longest chain of jobs, disk by kind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.files import read_object
from geomix.mixers.own.source import is_own
from geomix.settings import BASELINE, E_BRANCHFORMER, evaluation_sets, seeds_of, settings_hash, stages, trainings_of
from geomix.settings.replacements import REPLACEABLE
from geomix.speech.prepared import known_hashes
from geomix.training.pace import GPU_UTILISATION
from geomix.training.store import Stored, finished_with, stored

A100_FLOPS = 312e12  # dense bf16, NVIDIA's data sheet

# [Panayotov2015], Table 1: hours of each subset
_LIBRISPEECH_HOURS = {
    "train-clean-100": 100.6,
    "dev-clean": 5.4,
    "dev-other": 5.3,
    "test-clean": 5.4,
    "test-other": 5.1,
}
_FLAC_BYTES = 17_400  # per second of LibriSpeech: 6.3 GB of archive for train-clean-100
_WAV_BYTES = 32_000  # per second: 16 kHz, 16 bits
_FRAMES = 100  # per second
# weights, two moments of Adam and, in the middle of an accumulation, gradients: four fp32 numbers a parameter
_STATE_BYTES = 16
# last.ckpt, previous.ckpt, and the next one while it is written
_STATES = 3


@dataclass(frozen=True)
class Training:
    """One training. `hours` on one device (a GPU; or the CPU that was measured), (shortest, longest); `basis` says whence they come; `done`: the store has it finished, or its record exists."""

    track: str
    arm: str
    seed: int
    gated: bool
    hours: tuple[float, float]
    basis: str
    parameters: int
    done: bool


@dataclass(frozen=True)
class Space:
    """Disk that one kind of file takes at most: what and where, bytes, and the configuration key that bounds it."""

    kind: str
    bytes: float
    bound: str


@dataclass(frozen=True)
class Plan:
    """A study before it starts.

    trainings : in the order in which they are wanted: the first seed of all tracks and arms, then the next seeds.
    anchors : trainings that the gate wants beside those.
    fallback : those of the gate's fallback, which are trained only if the gate's own arm misses its target.
    jobs : rule -> number of jobs of a complete run from nothing that passes the gate.
    chain : the longest chain of jobs that wait for each other, and the device hours of its trainings.
    storage : what the study writes, by kind. `there` bytes of it exist already; `free` is what the disk still has.
    """

    run: str
    trainings: list[Training]
    anchors: list[Training]
    fallback: list[Training]
    jobs: dict[str, int]
    chain: list[str]
    chain_hours: tuple[float, float]
    storage: list[Space]
    there: float
    free: float

    @property
    def bytes(self) -> float:
        """Disk of all kinds together."""
        return sum(stored.bytes for stored in self.storage)

    @property
    def missing(self) -> float:
        """Bytes that the disk lacks; 0 when it has enough."""
        return max(0.0, self.bytes - self.there - self.free)


def hours_of(trainings: list[Training]) -> tuple[float, float]:
    """device hours of trainings together, (shortest, longest)."""
    return sum(t.hours[0] for t in trainings), sum(t.hours[1] for t in trainings)


def make_plan(
    config: Mapping[str, Any],
    root: Path = Path("."),
    *,
    device_flops: float = A100_FLOPS,
    utilisation: tuple[float, float] = GPU_UTILISATION,
) -> Plan:
    """Plan of the study that `config` describes.

    device hours come from the audio-seconds per second of the records under `root`/results where an arm has one on that track. Without one, an
    arm's pace is the baseline's by formula: `utilisation` of `device_flops` at the gate arm's FLOPs per audio-second. An arm of fewer
    FLOPs gains nothing by that (what it saves, the pair mixers lose to memory traffic); one of more FLOPs is slower in proportion.

    Raises UserError when the corpus's length or the number of output units is known neither from the configuration nor from prepared data.
    """
    from geomix.espnet_track.settings import e_branchformer_parameters
    from geomix.models.arms import arm_config
    from geomix.models.flops import parameter_count, train_flops_per_audio_second

    seconds = audio_seconds(config, root)
    vocabulary = output_units(config, root)
    study, arms = config["study"], config["arms"]
    flops, parameters = {}, {}
    gate = config["gate"] or {}
    anchors = [anchor for anchor in (config["gate"], gate.get("fallback")) if anchor]
    baseline = gate.get("arm") or BASELINE
    for arm in dict.fromkeys([baseline, *(anchor["arm"] for anchor in anchors), *study["arms"]]):
        if arms[arm].get("architecture") == E_BRANCHFORMER:  # about as large as the baseline, and taken to be as fast
            flops[arm], parameters[arm] = 0.0, e_branchformer_parameters(vocabulary)
            continue
        model = arm_config(config, arm, vocabulary)
        flops[arm], parameters[arm] = train_flops_per_audio_second(model), parameter_count(model)

    def training(track: str, arm: str, seed: int) -> Training:
        folder = root / "results" / config["run"] / track / arm
        amount = seconds["train"] * config["training"]["epochs"]
        if measured := _measured(folder, arms[arm]):
            hours = (amount / measured[0] / 3600,) * 2
            basis = f"measured on {measured[1]}"
        else:
            work = amount * max(flops[arm], flops[baseline])
            hours = tuple(work / (share * device_flops) / 3600 for share in (max(utilisation), min(utilisation)))
            basis = "formula"
        done = is_done(config, (track, arm, seed), folder / f"seed{seed}" / "record.json", entries, data)
        return Training(track, arm, seed, bool(arms[arm].get("gated")), hours, basis, parameters[arm], done)

    entries = stored(root / "state")
    data = known_hashes({split: _folder(config, root, split) for split in ("train", "dev")})
    trainings = [training(*each) for each in trainings_of(study)]
    known = {(t.track, t.arm, t.seed) for t in trainings}
    wanted = [[training(anchor["track"], anchor["arm"], seed) for seed in anchor["seeds"]] for anchor in anchors]
    own, fallback = (wanted + [[], []])[:2]
    others = [t for t in own if (t.track, t.arm, t.seed) not in known]
    chain, chain_hours = _chain(trainings, own)
    folders = [
        root / "data" / config["corpus"]["name"],
        root / "results" / config["run"],
        *(state.folder for state in stored(root / "state") if any(user.run == config["run"] for user in state.users)),
    ]
    return Plan(
        run=config["run"],
        trainings=trainings,
        anchors=others,
        fallback=[t for t in fallback if (t.track, t.arm, t.seed) not in known],
        jobs=_jobs(config, trainings, others),
        chain=chain,
        chain_hours=chain_hours,
        storage=list(_storage(config, seconds, [*trainings, *others, *fallback])),
        there=float(sum(map(_size, folders))),
        free=float(shutil.disk_usage(root).free),
    )


def is_done(
    config: Mapping[str, Any],
    training: tuple[str, str, int],
    record: Path,
    entries: Sequence[Stored],
    data: Mapping[str, str],
) -> bool:
    """Whether a training (track, arm, seed) is finished with the settings that `config` has now: in the store, or by its record."""
    track, arm, seed = training
    key = stages.training(config, arm, seed, track)
    if finished_with(entries, key, data):
        return True
    if not record.is_file():
        return False
    settings = read_object(record).get("settings")
    return settings is None or settings_hash(settings, {}) == key


def audio_seconds(config: Mapping[str, Any], root: Path = Path(".")) -> dict[str, float]:
    """Audio of `train` (all speed copies), `dev` and each evaluation set, in seconds: counted where prepared, else published."""
    corpus = config["corpus"]
    summaries = {name: _folder(config, root, name) / "split.json" for name in stages.splits_of(config)}
    if all(path.is_file() for path in summaries.values()):
        return {name: read_object(path, seconds=(int, float))["seconds"] for name, path in summaries.items()}
    parts = {"train": corpus["train"], "dev": corpus["dev"], **{name: [name] for name in evaluation_sets(config)}}
    if corpus["kind"] == "librispeech" and all(
        subset in _LIBRISPEECH_HOURS for part in parts.values() for subset in part
    ):
        seconds = {name: 3600 * sum(_LIBRISPEECH_HOURS[subset] for subset in part) for name, part in parts.items()}
        return {**seconds, "train": seconds["train"] * sum(1 / factor for factor in corpus["speed_factors"])}
    raise UserError(
        f"{summaries['train']}: not there yet, so the corpus's length is not known: run `snakemake prepare` with this configuration first"
    )


def _folder(config: Mapping[str, Any], root: Path, split: str) -> Path:
    return root / "data" / config["corpus"]["name"] / f"{split}-{stages.split_key(config, split)}"


def _subsets(config: Mapping[str, Any]) -> set[str]:
    """Subsets of the corpus that its splits are made of."""
    return {subset for split in stages.splits_of(config) for subset in stages.split_settings(config, split)["read"]}


def output_units(config: Mapping[str, Any], root: Path = Path(".")) -> int:
    """Output units of the models: `tokenizer.size`, or those of the prepared tokenizer where the text decides their number."""
    tokenizer = config["tokenizer"]
    if tokenizer["size"]:
        return tokenizer["size"]
    tokens = _folder(config, root, "train") / "tokenizer" / f"{tokenizer['kind']}-all" / "tokens.txt"
    if not tokens.is_file():
        raise UserError(
            f"{tokens}: not there yet, so the number of output units is not known: run `snakemake prepare` first, "
            "with this configuration"
        )
    return len(tokens.read_text(encoding="utf-8").splitlines())


def _measured(folder: Path, arm: Mapping[str, Any]) -> tuple[float, str] | None:
    """Mean audio-seconds per second of an arm's records and the device they ran on, if there are any of this mixer."""
    mixer = {key: value for key, value in arm.items() if key not in ("ff_dim", "gated", "unmatched", *REPLACEABLE)}
    kinds = {"mixer": dict, "audio_seconds_per_second": (int, float), "device": str}
    records = [read_object(path, **kinds) for path in sorted(folder.glob("seed*/record.json"))]
    # a record of before the defaults were filled in names fewer arguments
    records = [record for record in records if {**mixer, **record["mixer"]} == mixer]
    if not records:
        return None
    rates = [record["audio_seconds_per_second"] for record in records]
    return sum(rates) / len(rates), ", ".join(sorted({record["device"] for record in records}))


def _chain(trainings: list[Training], gate: list[Training]) -> tuple[list[str], tuple[float, float]]:
    """The longest chain of jobs: with gated arms, the gate's training and everything behind it come first."""

    def longest(among: list[Training]) -> Training:
        return max(among, key=lambda t: t.hours[1])

    def judged(t: Training) -> list[str]:
        return [f"train {t.track}/{t.arm}/seed{t.seed}", "average", "decode", "score"]

    last = longest(trainings)
    links = [last]
    steps = judged(last)
    gated = [t for t in trainings if t.gated]
    if gate and gated:
        links = [longest(gate), longest(gated)]
        steps = [*judged(links[0]), "measure_parity", "parity_gate", *judged(links[1])]
    return ["prepare_split", "features", "normalisation", *steps, "compare", "report", "page"], hours_of(links)


def _jobs(config: Mapping[str, Any], trainings: list[Training], anchors: list[Training]) -> dict[str, int]:
    """Jobs of each rule in a run from nothing; a test holds this against `snakemake -n`."""
    corpus, gate = config["corpus"], config["gate"] or {}
    splits, sets = stages.splits_of(config), len(evaluation_sets(config))
    downloads = len(_subsets(config)) if corpus["download"] else 0
    everything = [*trainings, *anchors]
    espnet = sum(t.track == "espnet" for t in everything)
    own_mixers = sum(is_own(config["arms"][t.arm].get("mixer")) for t in everything)
    # an anchor is judged on the sets of its targets alone
    scores = sets * len(trainings) + len(gate.get("targets", ())) * len(anchors)
    jobs = {
        "download_subset": downloads,
        "generate_corpus": int(corpus["kind"] in stages.GENERATED),
        "prepare_split": len(splits),
        "check_corpus": 1,
        "features": len(corpus["speed_factors"]) + len(splits) - 1,
        "normalisation": 1,
        "tokenizer": 1,
        "describe": 1,
        "train": len(everything) - espnet,
        "average": len(everything) - espnet - own_mixers,
        "average_own_mixer": own_mixers,
        "decode": scores,
        "score": scores,
        "measure_anchor": int(bool(gate.get("fallback"))),
        **dict.fromkeys(("measure_parity", "parity_gate"), int(bool(gate))),
        **dict.fromkeys(("compare", "report", "page"), 1),
        **_espnet_jobs(config, espnet),
    }
    return {rule: count for rule, count in jobs.items() if count}


def _espnet_jobs(config: Mapping[str, Any], trainings: int) -> dict[str, int]:
    """Jobs of the track espnet: its data and statistics, training, averaging, and ESPnet's own decoding with its scores."""
    if not trainings:
        return {}
    study, sets = config["study"], evaluation_sets(config)
    in_study = "espnet" in study["tracks"]
    # the prefix search is scored for the study's arms
    second = len(sets) * len(study["arms"]) * len(seeds_of(study, "espnet")) if in_study else 0
    return {
        "espnet_audio": sum(factor != 1.0 for factor in config["corpus"]["speed_factors"]),
        "espnet_data": len(stages.splits_of(config)) if in_study else 2,
        "espnet_stats": 1,
        "train_espnet": trainings,
        "average_espnet": trainings,
        "decode_espnet": second,
        "score_prefix_search": second,
        "agreement": int(in_study),
    }


def _storage(config: Mapping[str, Any], seconds: Mapping[str, float], trainings: list[Training]) -> Iterator[Space]:
    corpus, features = config["corpus"], config["features"]
    copies = sum(1 / factor for factor in corpus["speed_factors"])
    if corpus["download"]:
        recorded = 3600 * sum(_LIBRISPEECH_HOURS.get(name, 0.0) for name in _subsets(config))
        yield Space("recordings (archives, and unpacked)", 2 * _FLAC_BYTES * recorded, "corpus.train, dev, test")
    elif corpus["kind"] in ("demo", "smoke"):
        recorded = sum(seconds.values()) - seconds["train"] * (1 - 1 / copies)
        yield Space("recordings (synthesised)", _WAV_BYTES * recorded, "corpus.minutes")
    itemsize = {"float32": 4, "float16": 2}[features["dtype"]]
    yield Space(
        "features, once for all runs",
        _FRAMES * features["mels"] * itemsize * sum(seconds.values()),
        "features.dtype, corpus.speed_factors",
    )
    if any(t.track == "espnet" for t in trainings):
        yield Space("speed copies of the audio, for ESPnet", _WAV_BYTES * seconds["train"], "corpus.speed_factors")
    weights = sum(t.parameters for t in trainings)
    keep = config["training"]["keep_best"]
    yield Space(f"checkpoints (weights of the {keep} best epochs)", 4 * keep * weights, "training.keep_best")
    yield Space(
        "state folders (two resumable states, a third in the making)", _STATES * _STATE_BYTES * weights, "study"
    )
    yield Space("averaged models", 4 * weights, "study")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
