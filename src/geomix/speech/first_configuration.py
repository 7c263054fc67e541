"""A first configuration for a corpus: what to train on it, chosen by its hours, its text and the machine, each choice with its reason."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from geomix import files
from geomix.errors import UserError
from geomix.models.arms import arm_config
from geomix.models.flops import parameter_count, train_flops_per_audio_second
from geomix.settings import merge, resolve
from geomix.speech import normalisers
from geomix.speech.corpora.forms import Form, Sounds
from geomix.speech.corpora.manifest import COLUMNS
from geomix.speech.manifest import SAMPLE_RATE, Recording
from geomix.training.pace import Machine

ARMS = ("attention", "grassmann", "symmetric", "no_mixer")
_LEAST_SPEAKERS = 3  # one each for train, dev and test
# scripts whose words no space separates
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_JOB_SECONDS = 4.0  # a job's start


@dataclass(frozen=True)
class Size:
    """A model and how it is trained, for corpora below so many hours.

    updates : optimiser steps of a training; batch : most seconds of a batch
    """

    hours: float
    model: Mapping[str, Any]
    updates: int
    batch: float
    learning_rate: float
    accumulation: int = 1


def _model(blocks: int, width: int, ff_dim: int, kernel: int, dropout: float) -> dict[str, Any]:
    rates = dict.fromkeys(("dropout", "positional_dropout", "attention_dropout"), dropout)
    return {"blocks": blocks, "width": width, "ff_dim": ff_dim, "kernel": kernel, **rates}


# from the configurations an4 and demo to the parity recipe's; a CPU stops at the third
SIZES = (
    Size(0.5, _model(4, 64, 256, 15, 0.05), 1000, 25.0, 0.003),
    Size(5.0, _model(6, 96, 384, 15, 0.1), 5000, 50.0, 0.002),
    Size(30.0, _model(8, 144, 576, 15, 0.1), 15000, 100.0, 0.002),
    Size(float("inf"), _model(15, 256, 1024, 31, 0.1), 40000, 480.0, 0.002, accumulation=4),
)
_CPU_SIZES = SIZES[:3]


@dataclass
class First:
    """A first configuration: its sections with the reason for each, the tables to write beside it, and the hours it takes."""

    name: str
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    tables: dict[Path, str] = field(default_factory=dict)
    hours: tuple[float, float] = (0.0, 0.0)

    def put(self, section: str, reason: str, **keys: Any) -> None:
        """Set keys of a section, and say why."""
        self.sections.setdefault(section, {}).update(keys)
        self.reasons[section] = "; ".join(filter(None, (self.reasons.get(section), reason)))


def choose(form: Form, sounds: Sounds, machine: Machine, cores: int, out: Path, base: Mapping[str, Any]) -> First:
    """The first configuration for what was found; `out` is its file, `base` the content of config.yaml."""
    first = First(_name(out.stem))
    _choose_corpus(first, form, sounds, out)
    train = _choose_sets(first, form, out)
    texts = _choose_normaliser(first, form.recordings)
    hours = sum(sounds.seconds.values()) / 3600
    _choose_tokenizer(first, texts, hours)
    size = next(size for size in (SIZES if machine.gpu else _CPU_SIZES) if hours < size.hours or size is _CPU_SIZES[-1])
    if machine.gpu and hours >= _CPU_SIZES[-1].hours:
        size = SIZES[-1]
    _choose_model(first, size, hours, machine)
    _choose_training(first, size, sounds, train)
    first.hours = _match_arms(first, texts, sounds, machine, cores, base)
    return first


def _name(stem: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("_.-") or "mine"
    return name if name[0].isalnum() else f"c{name}"


def _choose_corpus(first: First, form: Form, sounds: Sounds, out: Path) -> None:
    seconds = sum(sounds.seconds.values())
    reason = f"{len(form.recordings):,} utterances of {len({r.speaker for r in form.recordings}):,} speakers, {seconds / 3600:.2f} h"
    first.put("corpus", reason, name=first.name, download=False, path=None, kind=form.kind)
    if form.kind:
        first.put("corpus", "", path=str(form.path.resolve()))
    if form.audio_root:
        first.put("corpus", "relative paths of wav.scp start at audio_root", audio_root=str(form.audio_root.resolve()))
    if any(r.command for r in form.recordings):
        first.put("corpus", "allow_pipes: commands of wav.scp run", allow_pipes=True)
    if not sounds.plain:
        found = ", ".join(f"{count} of {kind}" for kind, count in sounds.forms.most_common(3))
        first.put("corpus", f"resample: {found}", resample=True)


def _choose_sets(first: First, form: Form, out: Path) -> list[Recording]:
    """Train, dev and test: splits by their names, else speakers taken out of train by a hash of their names; returns those of train."""
    roles = {"train": ["train"], "dev": ["dev", "valid", "val"], "test": ["test", "eval"]}
    sets = {
        role: [name for name in form.splits if name.lower().startswith(tuple(starts))] for role, starts in roles.items()
    }
    sets["train"] = sets["train"] or [name for name in form.splits if name not in (*sets["dev"], *sets["test"])]
    missing = [role for role in ("dev", "test") if not sets[role]]
    if not sets["train"]:
        raise UserError(f"{form.path}: has no set to train on beside {', '.join(form.splits)}: name one train")
    train = [r for name in sets["train"] for r in form.splits[name]]
    speakers = {r.speaker for r in train}
    if form.kind is None or (missing and len(speakers) < _LEAST_SPEAKERS):
        sets = _write_tables(first, form, sets, train, missing, out)
        if all(sets.values()):
            first.put("corpus", "", **sets)
            return [r for r in train if f"\n{r.id}\t" in first.tables[_tables(out) / "train.tsv"]]
    held_out: dict[str, list[str]] = _hold_out(train, missing)
    dev, test = ({"hold_out_speakers": held_out[role]} if role in held_out else sets[role] for role in ("dev", "test"))
    reason = ", ".join(
        f"{role} is {len(names)} of train's {len(speakers)} speakers" for role, names in held_out.items()
    )
    first.put("corpus", reason and f"{reason}, chosen by a hash of their names", train=sets["train"])
    first.put("corpus", "", dev=dev, test={"test": test} if "test" in held_out else test)
    out_of_train = {speaker for names in held_out.values() for speaker in names}
    return [r for r in train if r.speaker not in out_of_train]


def _tables(out: Path) -> Path:
    """The folder of our own tables beside a configuration."""
    return out.with_name(f"{out.stem}-tables")


def _by_hash(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())


def _hold_out(train: Sequence[Recording], roles: Sequence[str]) -> dict[str, list[str]]:
    """Role -> its speakers: a tenth of them, two for the test set if there are six, 40 at most (200 of one utterance each)."""
    speakers = _by_hash({r.speaker for r in train})
    most = 200 if len(speakers) == len(train) else 40
    held_out: dict[str, list[str]] = {}
    for role in reversed(roles):  # test first
        count = min(max(round(len(speakers) / 10), 2 if role == "test" and len(speakers) >= 6 else 1), most)
        taken = sum(map(len, held_out.values()))
        held_out[role] = sorted(speakers[taken : taken + count])
    return {role: held_out[role] for role in roles}


def _write_tables(
    first: First,
    form: Form,
    sets: Mapping[str, list[str]],
    train: Sequence[Recording],
    missing: Sequence[str],
    out: Path,
) -> dict[str, list[str]]:
    """Tables of our own: for a form that is not read, or too few speakers to hold any out; returns the sets as tables."""
    if any(r.command or r.is_cut for r in train):
        raise UserError(
            f"{form.path}: has {len({r.speaker for r in train})} speakers, too few to hold any out for {' and '.join(missing)}: "
            "make a data folder of its own for each"
        )
    folder = _tables(out)
    parts = {role: [r for name in names for r in form.splits[name]] for role, names in sets.items()}
    if len({r.speaker for r in train}) < _LEAST_SPEAKERS:
        ids = _by_hash(r.id for r in train)
        count = max(len(ids) // 10, 1)
        chosen = {role: set(ids[count * n : count * (n + 1)]) for n, role in enumerate(missing)}
        parts |= {role: [r for r in train if r.id in some] for role, some in chosen.items()}
        parts["train"] = [r for r in train if not any(r.id in some for some in chosen.values())]
        first.put(
            "corpus", "too few speakers to hold any out: dev and test are a tenth of the utterances each, by a hash"
        )
    for role, recordings in parts.items():
        if recordings:
            rows = ["\t".join(COLUMNS), *("\t".join((r.id, r.speaker, r.path, r.text)) for r in recordings)]
            first.tables[folder / f"{role}.tsv"] = "\n".join(rows) + "\n"
    first.put("corpus", f"its tables are in {folder}", kind="manifest", path=str(folder.absolute()))
    return {role: [role] if parts[role] else [] for role in parts}


def _choose_normaliser(first: First, recordings: Sequence[Recording]) -> list[str]:
    """The transcripts as they are used: without punctuation and case where they have both."""
    texts = [r.text for r in recordings]
    letters = Counter("".join(texts))
    cases = {unicodedata.category(c) for c in letters if c.isalpha()} & {"Lu", "Ll"}
    marks = [c for c in letters if unicodedata.category(c)[0] in "PS" and c != "'"]
    name = "letters" if len(cases) == 2 or marks else "none"
    if name != "none":
        why = "upper and lower case" if len(cases) == 2 else f"punctuation ({' '.join(marks[:5])})"
        first.put("corpus", f"normaliser letters: the transcripts have {why}", normaliser=name)
    normalise = normalisers.named(name)
    return [text for text in (" ".join(normalise(text).split()) for text in texts) if text]


def _choose_tokenizer(first: First, texts: Sequence[str], hours: float) -> None:
    words = Counter(word for text in texts for word in text.split())
    characters = set("".join(texts)) - {" "}
    scripts = Counter(unicodedata.name(c, "?").split()[0].split("-")[0] for c in characters if c.isalpha())
    script = scripts.most_common(1)[0][0] if scripts else "?"
    about = f"{len(characters)} characters ({script.lower()}), {len(words):,} different words among {words.total():,}"
    units = 300 if hours < 100 else 1000
    if script in _UNSPACED:
        first.put("tokenizer", f"{about}: characters; no space separates words: read the CER", kind="char", size=None)
    elif len(words) <= 150 and words.total() >= 20 * len(words):
        first.put("tokenizer", f"{about}: words, since they are few and come often", kind="word", size=None)
    elif hours < 10 or units < 3 * len(characters):
        first.put("tokenizer", f"{about} in {hours:.1f} h: characters", kind="char", size=None)
    else:
        first.put(
            "tokenizer", f"{about} in {hours:.0f} h: {units} units of several letters", kind="unigram", size=units
        )


def _choose_model(first: First, size: Size, hours: float, machine: Machine) -> None:
    subsampling = 8 if first.sections["tokenizer"]["kind"] == "word" else 4
    where = "" if machine.gpu else f" and a machine without a GPU ({machine.name})"
    first.put("model", f"for {hours:.2f} h{where}", **size.model, subsampling=subsampling)


def _choose_training(first: First, size: Size, sounds: Sounds, train: Sequence[Recording]) -> None:
    speeds = 1 / 0.9 + 1 + 1 / 1.1
    audio = speeds * sum(sounds.seconds.values())
    seconds = min(max(audio / 20, 8.0), size.batch)
    each = max(audio / seconds / size.accumulation, 1)
    epochs = round(min(max(size.updates / each, 5), 200))
    updates = epochs * each
    share = sum(sounds.seconds[r.id] for r in train) / sum(sounds.seconds.values())
    first.put("corpus", "", speed_factors=[0.9, 1.0, 1.1])
    first.put(
        "training",
        f"{epochs} epochs are about {updates * share:,.0f} updates on {seconds:.0f} s each",
        epochs=epochs,
        batch_bins=round(seconds * SAMPLE_RATE * 1.1),  # with padding
        accumulation=size.accumulation,
        learning_rate=size.learning_rate,
        warmup=max(round(updates / 8), 10),
        keep_best=min(max(epochs // 5, 1), 10),
        detect_after=None if size is not SIZES[-1] else 4000,
        log_every=20 if updates < 5000 else 100,
        threads=1,
    )
    if size is not SIZES[-1]:
        first.put("augmentation", "", time_warp=5, frequency_masks=2, frequency_width=15, time_masks=2)


def _match_arms(
    first: First, texts: Sequence[str], sounds: Sounds, machine: Machine, cores: int, base: Mapping[str, Any]
) -> tuple[float, float]:
    """Give the arms the size of attention's, and return the hours that the study takes."""
    width, ff_dim = first.sections["model"]["width"], first.sections["model"]["ff_dim"]
    units = {"word": {w for text in texts for w in text.split()}, "char": set("".join(texts))}
    tokenizer = first.sections["tokenizer"]
    vocabulary = tokenizer["size"] or len(units[tokenizer["kind"]]) + 4
    config = resolve(merge(base, _content(first)))

    def model(arm: str, **keys: int) -> Any:
        return arm_config({**config, "arms": {arm: {**config["arms"][arm], **keys}}}, arm, vocabulary)

    wanted = parameter_count(model("attention"))

    def nearest(arm: str, key: str, values: Iterable[int]) -> dict[str, int]:
        return {key: min(values, key=lambda value: abs(parameter_count(model(arm, **{key: value})) - wanted))}

    ranks = range(4, width // 2, 2)
    arms = {
        "attention": {"heads": 4},
        "grassmann": nearest("grassmann", "rank", ranks),
        "symmetric": nearest("symmetric", "rank", ranks),
        "no_mixer": nearest("no_mixer", "ff_dim", range(ff_dim, 2 * ff_dim, 8)),
    }
    first.put("arms", f"about {wanted:,} parameters each", **arms)
    audio = sum(sounds.seconds.values()) * (1 / 0.9 + 1 + 1 / 1.1) * first.sections["training"]["epochs"]
    flops = [audio * train_flops_per_audio_second(model(arm, **arms[arm])) for arm in ARMS]
    at_once = 1 if machine.gpu else min(cores, len(ARMS))
    start = _JOB_SECONDS * (10 + 6 * len(ARMS)) / 3600 / min(cores, 4)
    low, high = (hours / at_once + start for hours in machine.hours(sum(flops)))
    return max(low, max(map(lambda work: machine.hours(work)[0], flops))), high


def _content(first: First) -> dict[str, Any]:
    """The configuration as plain values."""
    return {
        "run": first.name,
        **first.sections,
        "study": {"arms": list(ARMS), "tracks": ["own"], "seeds": [0]},
        "hypothesis": [],
        "comparison": {"planned": []},
        "gate": None,
        "references": [],
    }


_BELOW = {
    "study": "one seed a side is a verdict about two models, not about arms: add seeds when this runs",
    "hypothesis": "write yours here before the run",
    "comparison": "differences that you plan to test; without a plan all are marked exploratory",
    "gate": "no published number to reach first",
}


def written(first: First, command: str) -> str:
    """The configuration as a commented YAML file, laid over config.yaml."""
    lines = [
        f"# {command}",
        "# Laid over config.yaml; every key is explained in config/README.md.",
        f"run: {first.name}",
    ]
    for section, values in _content(first).items():
        if section == "run":
            continue
        reason = first.reasons.get(section) or _BELOW.get(section)
        if reason:
            lines += ["", *(f"# {part}" for part in reason.split("; "))]
        if section not in first.sections or not isinstance(values, Mapping):
            lines.append(f"{section}: {_inline(values)}")
            continue
        lines.append(f"{section}:")
        lines += [f"  {key}: {_inline(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


class _Dumper(yaml.SafeDumper):
    """Writes text that any YAML reader might take for something else than text in quotes: 009 is a number to some."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    plain = re.fullmatch(r"[A-Za-z/_][\w./ -]*", value)
    return (
        yaml.SafeDumper.represent_str(dumper, value)
        if plain
        else dumper.represent_scalar("tag:yaml.org,2002:str", value, '"')
    )


_Dumper.add_representer(str, _text)


def _inline(value: Any) -> str:
    """A value on one line of YAML."""
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("...\n").strip()


def save(first: First, out: Path, command: str, base: Mapping[str, Any]) -> None:
    """Write the tables and then the configuration, which must resolve."""
    text = written(first, command)
    resolve(merge(base, yaml.safe_load(text)))
    for path, table in first.tables.items():
        files.write_text(path, table)
    files.write_text(out, text)
