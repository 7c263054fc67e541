"""What the workflow's rules of the track espnet call: collect-stats, training, averaging, decoding.

The steps themselves run in ESPnet's environment (`environment.run_step`); files appear whole, states are locked and keyed, as on
the own track.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geomix.errors import UserError
from geomix.espnet_track.data import EspnetData, read_shapes, write_training_shapes
from geomix.espnet_track.environment import run_step
from geomix.espnet_track.record import Trained, log_lines, origin_of, record_of
from geomix.espnet_track.settings import criterion_of, stats_config, subsampling_of, training_config
from geomix.files import atomic_path, folder_lock, read_object, write_json, write_text
from geomix.mixers.own.source import FILE, KEPT, is_own, keep, kept
from geomix.settings import E_BRANCHFORMER
from geomix.tensors import write_tensors
from geomix.training.averaging import Epochs, Selection, write_averaging
from geomix.training.progress import LOG, read_log, say
from geomix.training.record import About, RunRecord
from geomix.training.store import SETTINGS, Layout, Request, State, User, opened, plain

CHECKPOINT = "checkpoint.pth"
_ATTEMPTS, _SAID = "attempts.json", "espnet.log"
LAYOUT = Layout((CHECKPOINT,), "{}epoch.pth", (LOG, _ATTEMPTS, _SAID, "*.best.pth", "latest.pth"))
"""Names of the files in ESPnet's experiment folder, which is the state folder."""


def collect_stats(data: EspnetData, mels: int, threads: int = 1) -> None:
    """ESPnet's collect-stats over all training utterances, into `data.stats`; what else it leaves is dropped."""
    data.stats.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data.stats.parent) as folder:
        run_step("stats", {"config": stats_config(data, mels, Path(folder))}, threads=threads)
        os.replace(Path(folder) / "train" / data.stats.name, data.stats)


def train(
    settings: Mapping[str, Any],
    data: EspnetData,
    *,
    about: About,
    state_root: Path = Path("state"),
    out: Path,
    selection: Selection,
    dev_features: Path,
    log_every: int = 50,
    threads: int = 1,
    device: str = "auto",
) -> RunRecord:
    """Train one arm with ESPnet's trainer, or go on from its last whole epoch, and write what the train rule declares.

    Parameters
    ----------
    settings, about, state_root, out : as `geomix.speech.training.train_arm` has them
    selection : the epochs whose weights stay on disk while this training runs
    dev_features : our features of the dev set (their data file), for the diagnostics of pair mixers
    """
    from geomix.training import devices

    training, out = settings["training"], Path(out)
    gpu = devices.choose_device(device).type == "cuda"
    criterion_of(selection)  # before the store makes a folder
    user = User(about.run, settings["track"], about.arm, settings["seed"])
    request = Request(settings, data.hashes, user, LAYOUT, selection, training.get("schedule", "warmup"))
    with opened(Path(state_root), request) as found:
        state = found.folder
        keep(settings["model"].get("mixer"), state)
        at_work = {**settings, "model": kept(settings["model"], state)}
        shapes, dropped = write_training_shapes(data, subsampling_of(settings["model"]), state / "shapes")
        batches = _batch_count(shapes, training)
        if dropped:
            say(f"{len(dropped)} utterances are too short for their transcripts and left out: {' '.join(dropped)}")
        config = training_config(at_work, data, state, shapes, selection, gpu=gpu, batches=batches, log_every=log_every)
        step = {"config": config, "diagnostics": _watched(at_work, data, dev_features)}
        watch = _Watch(user.name, state / LOG, training, batches)
        summary, attempts = _trained(found, step, watch, threads)
        summary["epochs"] = {int(epoch): values for epoch, values in summary["epochs"].items()}
        origin = origin_of(summary, threads)
        if len(summary["epochs"]) >= training["epochs"]:
            (origin,) = found.finish(summary["epochs"], origin)
        lines = log_lines(state, summary, training["accumulation"])
        log = "".join(json.dumps(line) + "\n" for line in lines)

    write_json(out / "diagnostics.json", summary["diagnostics"] or {"utterances": [], "start": [], "end": []})
    write_text(out / "log.jsonl", log)
    write_json(out / "epochs.json", {"state": os.path.relpath(state), "epochs": plain(summary["epochs"])})
    trained = Trained(settings, data, summary, attempts, selection, shapes[0], dropped)
    record = record_of(about, trained, state, origin)
    record.write(out / "record.json")
    return record


def _trained(
    found: State, step: Mapping[str, Any], watch: _Watch, threads: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ESPnet's training did, run to its end now or before, and its attempts with their largest memory."""
    said = found.folder / _SAID
    if found.restored:  # ESPnet would average again, over files that another selection may not have kept
        return run_step("summary", step, threads=threads, log=said), read_object(found.folder / _ATTEMPTS, "attempts")
    attempts = _begin_attempt(found.folder)
    summary = run_step("train", step, threads=threads, log=said, on_line=watch)
    attempts["peak_memory"] = max(summary["peak_memory"], attempts.get("peak_memory", 0))
    write_json(found.folder / _ATTEMPTS, attempts)
    return summary, attempts


def _begin_attempt(state: Path) -> dict[str, Any]:
    """Count this attempt, and cut the log back to the checkpoint's epoch, where ESPnet goes on."""
    path = state / _ATTEMPTS
    attempts = read_object(path) if path.exists() else {"attempts": 0}
    attempts["attempts"] += 1
    write_json(path, attempts)
    done = max(
        (int(found[1]) for p in state.glob("*epoch.pth") if (found := re.match(r"(\d+)epoch", p.name))), default=0
    )
    if not (state / CHECKPOINT).exists():
        done = 0
    if (state / LOG).exists():
        lines = [line for line in read_log(state / LOG) if line["epoch"] <= done]
        write_text(state / LOG, "".join(json.dumps(line) + "\n" for line in lines))
    return attempts


class _Watch:
    """Turns ESPnet's progress into lines of the state's log.jsonl, which `geomix status` reads, and into a line an epoch for people."""

    _STEP = re.compile(r"(\d+)epoch:train:\d+-(\d+)batch: (.*)")
    _EPOCH = re.compile(r"(\d+)epoch results: (.*)")

    def __init__(self, name: str, log: Path, training: Mapping[str, Any], batches: int):
        self._name, self._log, self._accumulation = name, log, training["accumulation"]
        self._epochs = training["epochs"]
        self._per_epoch = batches // self._accumulation
        self._total = training["epochs"] * self._per_epoch
        self._first: tuple[int, float] | None = None

    def __call__(self, line: str) -> None:
        if found := self._EPOCH.search(line):
            losses = re.findall(r"\bloss=([^\s,]+)", found[2])
            cer = re.search(r"cer_ctc=([^\s,]+)", found[2])
            say(
                f"{self._name}: epoch {found[1]}/{self._epochs} done, train loss {losses[0]}, dev loss {losses[-1]}, cer_ctc {cer[1] if cer else '-'}"
            )
        if not (found := self._STEP.search(line)):
            return
        values = dict(re.findall(r"(\w+)=([^\s,]+)", found[3]))
        epoch, batch = int(found[1]), int(found[2])
        update = (epoch - 1) * self._per_epoch + batch // self._accumulation
        now = time.monotonic()
        self._first = self._first or (update, now)
        pace = (now - self._first[1]) / max(update - self._first[0], 1)
        step = {
            "kind": "step",
            "epoch": epoch,
            "update": update,
            "loss": _float(values.get("loss")),
            "lr": _float(values.get("optim0_lr0")),
            "grad_norm": _float(values.get("grad_norm")),
            "time_left_s": round(pace * max(self._total - update, 0), 1),
        }
        with open(self._log, "a", encoding="utf-8") as file:
            file.write(json.dumps(step) + "\n")


def _float(text: str | None) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if abs(value) < float("inf") else None


def _batch_count(shapes: Sequence[Path], training: Mapping[str, Any]) -> int:
    """Batches of an epoch, by our own batching of the same shapes (a check holds it against ESPnet's sampler)."""
    from geomix.speech.batching import numel_batches

    batches = len(numel_batches(*read_shapes(shapes), training["batch_bins"]))
    if batches < training["accumulation"]:
        raise UserError(
            f"training.accumulation {training['accumulation']}: an epoch has {batches} batches, and ESPnet makes no update: lower it or training.batch_bins"
        )
    return batches


def _watched(settings: Mapping[str, Any], data: EspnetData, dev_features: Path) -> dict[str, Any] | None:
    """Our form of the model and our features of the dev set, for diagnostics; None for a model that has none of ours."""
    if settings["model"].get("architecture") == E_BRANCHFORMER:
        return None
    return {"model": _own_model(settings, data.tokenizer), "features": str(Path(dev_features).with_suffix(""))}


def _own_model(settings: Mapping[str, Any], tokenizer: Path) -> dict[str, Any]:
    """The same network as our configuration names it; `tokenizer` is a folder."""
    from geomix.models.architectures import model_config
    from geomix.speech.tokenizer import Tokenizer

    vocab = Tokenizer.load(tokenizer).size
    return model_config({**settings["model"], "vocab": vocab, "seed": settings["seed"]}).to_dict()


def average(epochs: Path, tokenizer: Path, out: Path, selection: Selection, *, threads: int = 1) -> dict[str, Any]:
    """ESPnet's own average of the best epochs as a model folder, and as ESPnet itself loads it.

    `out` gets espnet.pth and espnet.yaml; model.safetensors and model.yaml, the same weights under our names, which the shared
    decoder reads (under ESPnet's names for a model that ours has no counterpart of); the source of a user's own mixer; the
    tokenizer; and averaging.json.

    epochs : epochs.json of `train`; tokenizer : its folder. A selection other than the training's is averaged here, by ESPnet,
    in the state folder; a `UserError` names wanted epochs whose weights are no longer kept.
    """
    import torch
    import yaml

    from geomix.espnet_track.weights import from_espnet
    from geomix.models.architectures import model_config
    from geomix.models.saved import save_model
    from geomix.speech.tokenizer import copy_tokenizer

    out, choice = Path(out), Epochs.read(epochs)
    state = choice.state
    settings = read_object(state / SETTINGS, "settings")["settings"]
    settings = {**settings, "model": kept(settings["model"], state)}
    averaged, best = _averaged(choice, selection, threads)
    weights = torch.load(averaged, map_location="cpu", weights_only=True)
    if bad := [
        name for name, value in weights.items() if value.is_floating_point() and not torch.isfinite(value).all()
    ]:
        raise UserError(
            f"{averaged}: {bad[0]} holds NaN or infinity: the training diverged; lower training.learning_rate and train again"
        )
    with atomic_path(out / "espnet.pth") as temporary:
        shutil.copyfile(averaged, temporary)
    write_text(out / "espnet.yaml", _options(state, settings["model"], out))
    copy_tokenizer(tokenizer, out)
    if settings["model"].get("architecture") == E_BRANCHFORMER:
        write_tensors(out / "model.safetensors", weights)
        about = {"model": {"architecture": E_BRANCHFORMER}, "tokenizer": "tokenizer.model"}
        write_text(out / "model.yaml", yaml.safe_dump(about, sort_keys=False))
    else:
        model = model_config(_own_model(settings, tokenizer)).build()
        attention = settings["model"]["mixer"]["mixer"] == "attention"
        model.load_state_dict(from_espnet(weights, model.state_dict(), attention=attention))
        save_model(model, out)
    return write_averaging(choice, best, selection, out)


def _options(state: Path, model: Mapping[str, Any], out: Path) -> str:
    """ESPnet's options of a training, by which the model in `out` is loaded: a user's own mixer from its copy there."""
    lines = (state / "config.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    # `config` is where the options lay when the training began
    text = "".join(line for line in lines if not line.startswith("config: "))
    if not is_own(model.get("mixer", {}).get("mixer")):
        return text
    return re.sub(rf"^( +{KEPT}: ).*", lambda found: found[1] + json.dumps(str(out / FILE)), text, flags=re.MULTILINE)


def _averaged(choice: Epochs, selection: Selection, threads: int) -> tuple[Path, list[int]]:
    """ESPnet's file of the mean of the best epochs, made where the training made another, and these epochs, best first."""
    phase, key, mode = criterion_of(selection)
    best = selection.best(choice.metrics)
    averaged = choice.state / f"{phase}.{key}.ave_{len(best)}best.pth"
    if not averaged.exists():
        choice.chosen(selection, LAYOUT.weights)
        with folder_lock(choice.state, "training"):
            request = {"folder": str(choice.state), "criterion": [phase, key, mode], "keep": len(best)}
            run_step("average", request, threads=threads, log=choice.state / _SAID)
    return averaged, best


def decode(
    model: Path,
    data: Mapping[str, Path],
    prefix: Mapping[str, Path],
    argmax: Mapping[str, Path],
    *,
    threads: int = 1,
    device: str = "auto",
) -> None:
    """Decode sets with ESPnet itself: its inference at beam 1, a prefix search, and argmax-collapse of its model.

    model : folder of `average`; data, prefix, argmax : set -> Kaldi folder to read, Kaldi texts to write
    """
    from geomix.training import devices

    gpu = devices.choose_device(device).type == "cuda"
    sets = [{"data": str(data[name]), "prefix": str(prefix[name]), "argmax": str(argmax[name])} for name in data]
    request = {
        "model": str(model / "espnet.pth"),
        "config": str(model / "espnet.yaml"),
        "tokenizer": str(model),
        "sets": sets,
        "gpu": gpu,
    }
    run_step("decode", request, threads=threads)


def agree(
    settings: Mapping[str, Any],
    data: EspnetData,
    *,
    train_features: Sequence[Path],
    dev_features: Path,
    normalisation: Path,
    out: Path,
    threads: int = 1,
) -> dict[str, Any]:
    """Hold the two tracks against each other without training (see `agreement.check`); write agreement.json.

    settings : arm -> its `training_settings`; the features and their normalisation are the own track's
    """
    from geomix.training.record import code_version

    request = {
        "settings": dict(settings),
        "data": {field.name: str(getattr(data, field.name)) for field in dataclasses.fields(data)},
        "train_features": [str(Path(path).with_suffix("")) for path in train_features],
        "dev_features": str(Path(dev_features).with_suffix("")),
        "normalisation": str(normalisation),
    }
    found = run_step("agreement", request, threads=threads) | code_version()
    write_json(out, found)
    return found
